"""The token file of a data directory: names, scopes and hashes of access tokens, never the tokens themselves.

    {"format": 1, "tokens": [{"name": "ci", "sha256": "<64 hex>", "scopes": ["submit"], "created_at_ms": 1,
                              "expires_at_ms": 0}]}

Invariants: the file is replaced as a whole, and is durable before a token is shown; a file that is damaged in part is
refused as a whole; if there is a file, every caller needs a token, even if the file contains none.
"""

import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from holdfast import limits
from holdfast.errors import AbortedError, FailedPreconditionError, InvalidArgumentError, NotFoundError
from holdfast.process.private_paths import make_directory, prepare_holder, problem_of_file, sync_directory
from holdfast.server.auth.permissions import Scope

FILE_NAME = "tokens.json"
LOCK_NAME = "tokens.lock"
_FORMAT = 1
_BYTES = 32
#: Identifies a token that is found in a log or a repository.
_PREFIX = "hf_"
#: Holdfast's tokens are shorter; longer input is never hashed.
TOKEN_CHARS_MAX = 128
#: One token for each person and program is a small number; a thousand is a mistake in a loop.
TOKENS_MAX = 1_000
_NAME = re.compile(limits.NAME_PATTERN)
_HASH = re.compile(r"[0-9a-f]{64}")


class Token(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The stored data of one token."""

    name: str
    sha256: str
    scopes: tuple[Scope, ...]
    created_at_ms: int = 0
    #: 0: never.
    expires_at_ms: int = 0

    def is_over(self, now_ms: int) -> bool:
        """Whether the token has expired."""
        return 0 < self.expires_at_ms <= now_ms


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    format: int
    tokens: list[Token]


def hash_of(token: str) -> bytes:
    """Returns the hash that identifies a token; empty for input that cannot be a token."""
    if len(token) > TOKEN_CHARS_MAX or not token.isascii():
        return b""
    return hashlib.sha256(token.encode()).digest()


class TokenTable:
    """Finds a token by its hash, without revealing known hashes by timing.

    The lookup uses a keyed hash with a random key that stays in this object; the match is compared in constant time.
    """

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._key = secrets.token_bytes(_BYTES)
        self._tokens = {self._blinded(bytes.fromhex(token.sha256)): token for token in tokens}

    def find(self, digest: bytes) -> Token | None:
        """Returns the token with this hash, if there is one."""
        token = self._tokens.get(self._blinded(digest))
        if token is None or not hmac.compare_digest(bytes.fromhex(token.sha256), digest):
            return None
        return token

    def _blinded(self, digest: bytes) -> bytes:
        return hashlib.blake2b(digest, key=self._key, digest_size=_BYTES).digest()


def read(path: Path) -> list[Token] | None:
    """Reads the tokens; None if there is no file, `FailedPreconditionError` if it cannot be trusted."""
    try:
        with path.open("rb") as file:
            found, data = os.fstat(file.fileno()), file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(path, f"it cannot be read: {error.strerror or error}") from error
    if problem := problem_of_file(path, found):
        raise _unusable(path, problem)
    try:
        decoded = msgspec.json.decode(data, type=_File)
        json.loads(data, object_pairs_hook=_once)  # msgspec has checked the shape, so the depth is small
    except ValueError as error:
        raise _damaged(path, str(error)) from error
    if problem := next(_problems(decoded), ""):
        raise _damaged(path, problem)
    return decoded.tokens


def _once(pairs: list[tuple[str, object]]) -> None:
    if len({name for name, _ in pairs}) != len(pairs):
        raise ValueError("a field occurs twice")


def _problems(file: _File) -> Iterator[str]:
    if file.format != _FORMAT:
        yield f"expected format {_FORMAT}, got {file.format}"
    names = [token.name for token in file.tokens]
    if len(set(names)) != len(names) or len({token.sha256 for token in file.tokens}) != len(names):
        yield "two tokens have the same name or the same hash"
    for token in file.tokens:
        if not (_NAME.fullmatch(token.name) and _HASH.fullmatch(token.sha256) and token.scopes):
            yield f"expected a name, a hash and scopes, got {token.name[:80]!r} {token.sha256[:80]!r}"


def _unusable(path: Path, why: str) -> FailedPreconditionError:
    message = f"the token file {str(path)!r} cannot be used: {why}"
    return FailedPreconditionError(message, reason="TOKENS_UNUSABLE")


def _damaged(path: Path, why: str) -> FailedPreconditionError:
    return FailedPreconditionError(
        f"the token file {str(path)!r} is damaged: {why};"
        " restore it from a backup, or remove it and create new tokens with `holdfast token create`",
        reason="TOKENS_DAMAGED",
    )


def create(path: Path, name: str, scopes: Sequence[Scope], *, now_ms: int, expires_at_ms: int = 0) -> str:
    """Creates a token, makes it durable and returns it; it is not stored and cannot be shown again.

    `FailedPreconditionError` if other users may change the directory: a server refuses a token file there.
    """
    if not _NAME.fullmatch(name):
        rule = f"1 to {limits.NAME_CHARS_MAX} letters, digits, '.', '_' or '-'"
        raise InvalidArgumentError(f"the name must be {rule}, got {name[:80]!r}", reason="NAME_INVALID")
    token = f"{_PREFIX}{secrets.token_urlsafe(_BYTES)}"
    made = Token(
        name=name,
        sha256=hash_of(token).hex(),
        scopes=tuple(scope for scope in Scope if scope in scopes),
        created_at_ms=now_ms,
        expires_at_ms=expires_at_ms,
    )
    with _alone(path, prepare_holder):
        tokens = read(path) or []
        if any(known.name == name for known in tokens):
            message = f"a token named {name!r} already exists; revoke it first, or choose another name"
            raise AbortedError(message, reason="TOKEN_EXISTS")
        if len(tokens) >= TOKENS_MAX:
            message = f"there are {TOKENS_MAX} tokens already; revoke unused ones"
            raise FailedPreconditionError(message, reason="TOO_MANY_TOKENS")
        _write(path, [*tokens, made])
    return token


def revoke(path: Path, name: str) -> Token:
    """Removes a token; `NotFoundError` if there is none with this name."""
    with _alone(path):
        tokens = read(path) or []
        gone = next((token for token in tokens if token.name == name), None)
        if gone is None:
            raise NotFoundError(f"there is no token named {name[:80]!r}", reason="TOKEN_UNKNOWN")
        _write(path, [token for token in tokens if token is not gone])
        return gone


@contextmanager
def _alone(path: Path, prepare: Callable[[Path], None] = make_directory) -> Iterator[None]:
    """Locks the file against concurrent changes; `prepare` creates its directory if it is missing."""
    try:
        prepare(path.parent)
        # A separate lock file: the server that runs in the directory holds the lock of the directory itself.
        lock = os.open(path.with_name(LOCK_NAME), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
        sync_directory(path.parent)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        os.close(lock)


def _write(path: Path, tokens: list[Token]) -> None:
    """Replaces the file atomically; durable once the directory is synced too."""
    data = msgspec.json.format(msgspec.json.encode(_File(format=_FORMAT, tokens=tokens)), indent=1) + b"\n"
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(file, "wb") as stream:  # noqa: PTH123 - a descriptor, not a path
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def _unwritable(path: Path, error: OSError) -> FailedPreconditionError:
    message = f"the token file {str(path)!r} cannot be changed: {error.strerror or error}"
    return FailedPreconditionError(message, reason="TOKENS_UNWRITABLE")
