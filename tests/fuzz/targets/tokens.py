"""Tokens: only the exact token is admitted, and an invalid token file is refused as a whole."""

import hashlib
import json
import tempfile
from functools import cache
from pathlib import Path

from holdfast.errors import FailedPreconditionError, HoldfastError, PermissionDeniedError, UnauthenticatedError
from holdfast.server.auth import tokens
from holdfast.server.auth.permissions import Scope
from holdfast.server.auth.rate_limits import Budgets
from holdfast.server.auth.token_guard import TokenGuard
from tests.fuzz.depth import DEEP_JSON

IS_GUIDED = False

_NOW_MS = 1_700_000_000_000
_TOKEN, _OLD = "hf_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG", "hf_thisOneHasRunOut"
_FILE, _SHOWN = b"\0", b"\1"


@cache
def _folder() -> tuple[tempfile.TemporaryDirectory[str], Path]:
    made = tempfile.TemporaryDirectory(prefix="holdfast-fuzz-")
    return made, Path(made.name)


def _row(name: str, token: str, **more: object) -> dict[str, object]:
    return {"name": name, "sha256": hashlib.sha256(token.encode()).hexdigest(), "scopes": ["read", "submit"], **more}


def _written(rows: list[dict[str, object]]) -> bytes:
    return json.dumps({"format": 1, "tokens": rows}).encode()


def seeds() -> list[bytes]:
    """Valid and invalid token files, and presented tokens."""
    rows = [_row("ci", _TOKEN, created_at_ms=1), _row("old", _OLD, expires_at_ms=_NOW_MS - 1)]
    deep = b'{"format":1,"tokens":[],"x":' + DEEP_JSON
    files = [_written(rows), _written([]), b"", b"{}", DEEP_JSON, deep]
    shown = [_TOKEN, _OLD, "", f" {_TOKEN}", f"{_TOKEN}\n", _TOKEN.upper(), _TOKEN[:-1], "é", "x" * 129]
    return [*(_FILE + file for file in files), *(_SHOWN + text.encode() for text in shown)]


def fuzz(data: bytes) -> None:
    """Reads a token file, or checks a presented token."""
    if data[:1] < _SHOWN or data[0] % 2 == 0:
        _check_file(data[1:])
    else:
        _check_shown(data[1:].decode("utf-8", "surrogateescape"))


def _check_file(data: bytes) -> None:
    path = _path(data)
    try:
        found = tokens.read(path)
    except FailedPreconditionError as error:
        assert error.reason == "TOKENS_DAMAGED"
        assert str(path) in error.message
        return
    assert found is not None
    assert found == tokens.read(path)
    names = [token.name for token in found]
    assert len(set(names)) == len(names)
    known = {token.sha256: token for token in found}
    guard = _guard(path)
    for shown in (_TOKEN, _OLD):
        token = known.get(hashlib.sha256(shown.encode()).hexdigest())
        is_good = token is not None and not token.is_over(_NOW_MS)
        for scope in Scope:
            may = is_good and token is not None and (scope in token.scopes or Scope.ADMIN in token.scopes)
            assert _is_admitted(guard, shown, scope) == may, f"{scope} with {token}"


def _check_shown(shown: str) -> None:
    guard = _guard(_path(_written([_row("ci", _TOKEN), _row("old", _OLD, expires_at_ms=_NOW_MS - 1)])))
    for scope in Scope:
        may = shown == _TOKEN and scope in {Scope.READ, Scope.SUBMIT}
        assert _is_admitted(guard, shown, scope) == may, f"{shown!r} was{'' if may else ' not'} to be let in"


def _path(data: bytes) -> Path:
    path = _folder()[1] / tokens.FILE_NAME
    path.touch(mode=0o600)
    path.write_bytes(data)
    return path


def _guard(path: Path) -> TokenGuard:
    return TokenGuard(path, Budgets(), lambda: _NOW_MS)


def _is_admitted(guard: TokenGuard, shown: str, scope: Scope) -> bool:
    try:
        guard.admit(shown, "127.0.0.1:1", scope)
    except (UnauthenticatedError, PermissionDeniedError) as error:
        assert isinstance(error, HoldfastError)
        assert shown not in error.message or len(shown) < 8, "a token was shown"
        return False
    return True
