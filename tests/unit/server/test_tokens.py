"""The token file: its content, its validation, and concurrent changes."""

import json
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.errors import AbortedError, FailedPreconditionError, InvalidArgumentError, NotFoundError
from holdfast.server.auth import tokens
from holdfast.server.auth.permissions import Scope
from holdfast.server.auth.tokens import TokenTable, create, hash_of, read, revoke

NOW_MS = 1_700_000_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / tokens.FILE_NAME


def made(path: Path, name: str = "ci", *scopes: Scope, expires_at_ms: int = 0) -> str:
    return create(path, name, scopes or (Scope.READ,), now_ms=NOW_MS, expires_at_ms=expires_at_ms)


def test_token_is_random_and_only_its_hash_is_kept(path: Path) -> None:
    """A token has 256 random bits, and the file holds only its hash."""
    first, second = made(path, "a", Scope.SUBMIT, Scope.READ), made(path, "b")
    assert re.fullmatch(r"hf_[A-Za-z0-9_-]{43}", first)
    assert first != second
    content = path.read_text()
    assert first not in content
    assert first[3:] not in content
    kept = read(path)
    assert kept is not None
    assert [(token.name, token.scopes) for token in kept] == [("a", (Scope.SUBMIT, Scope.READ)), ("b", (Scope.READ,))]
    assert kept[0].sha256 == hash_of(first).hex()


def test_file_and_directory_are_the_owners_alone(path: Path) -> None:
    """Only the owner may read or write the file and its directory, and no temporary file is left."""
    made(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    made(path, "b")
    assert {entry.name for entry in path.parent.iterdir()} == {tokens.FILE_NAME, tokens.LOCK_NAME}


def test_no_file_is_not_the_same_as_no_tokens(path: Path) -> None:
    """After the last token was revoked the file has no tokens, which differs from no file."""
    assert read(path) is None
    made(path)
    revoke(path, "ci")
    assert read(path) == []


def test_names_are_taken_once_and_can_be_revoked_once(path: Path) -> None:
    """A name belongs to one token and can be revoked once."""
    made(path)
    with pytest.raises(AbortedError, match="already"):
        made(path)
    revoke(path, "ci")
    with pytest.raises(NotFoundError):
        revoke(path, "ci")
    made(path)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "é", "a" * 129, "a\n"])
def test_name_that_cannot_be_shown_is_refused(path: Path, name: str) -> None:
    """A name that cannot be shown in logs and lists is refused."""
    with pytest.raises(InvalidArgumentError):
        made(path, name)
    assert not path.exists()


def test_tokens_created_concurrently_are_all_kept(path: Path) -> None:
    """Tokens that are created concurrently are all kept."""
    with ThreadPoolExecutor(8) as pool:
        shown = list(pool.map(lambda number: made(path, f"t{number}"), range(40)))
    kept = read(path)
    assert kept is not None
    assert {token.sha256 for token in kept} == {hash_of(token).hex() for token in shown}


TOKEN = {"name": "ci", "sha256": "a" * 64, "scopes": ["read"], "created_at_ms": 1, "expires_at_ms": 0}
CHANGES: dict[str, object] = {
    "unknown scope": {"format": 1, "tokens": [{**TOKEN, "scopes": ["everything"]}]},
    "no scope": {"format": 1, "tokens": [{**TOKEN, "scopes": []}]},
    "short hash": {"format": 1, "tokens": [{**TOKEN, "sha256": "a" * 63}]},
    "capital hash": {"format": 1, "tokens": [{**TOKEN, "sha256": "A" * 64}]},
    "strange name": {"format": 1, "tokens": [{**TOKEN, "name": "../x"}]},
    "unknown field": {"format": 1, "tokens": [{**TOKEN, "more": 1}]},
    "name twice": {"format": 1, "tokens": [TOKEN, {**TOKEN, "sha256": "b" * 64}]},
    "hash twice": {"format": 1, "tokens": [TOKEN, {**TOKEN, "name": "other"}]},
    "other format": {"format": 2, "tokens": [TOKEN]},
    "no tokens": {"format": 1},
    "list": [],
}


def put(path: Path, text: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(text)
    path.chmod(0o600)


@pytest.mark.parametrize("change", CHANGES)
def test_file_that_means_nothing_is_refused(path: Path, change: str) -> None:
    """A file with an invalid entry is refused as a whole, with a message on what to do."""
    put(path, json.dumps(CHANGES[change]).encode())
    with pytest.raises(FailedPreconditionError, match=r"is damaged.*holdfast token create") as caught:
        read(path)
    assert caught.value.reason == "TOKENS_DAMAGED"
    with pytest.raises(FailedPreconditionError):
        made(path, "other")


def test_good_file_by_hand_is_taken(path: Path) -> None:
    """A valid file that was written by hand is accepted."""
    put(path, json.dumps({"format": 1, "tokens": [TOKEN]}).encode())
    assert read(path) is not None


def test_every_prefix_of_a_file_is_refused(path: Path) -> None:
    """A truncated file is refused."""
    made(path)
    whole = path.read_bytes()
    for size in range(len(whole.rstrip())):
        path.write_bytes(whole[:size])
        with pytest.raises(FailedPreconditionError):
            read(path)


@pytest.mark.parametrize("text", [b"\xff\xfe", b'{"format": 1, "format": 1, "tokens": []}', b"[" * 100_000, b"null"])
def test_hostile_file_is_refused(path: Path, text: bytes) -> None:
    """A file with invalid bytes, repeated names or extreme depth is refused."""
    put(path, text)
    with pytest.raises(FailedPreconditionError):
        read(path)


def test_file_that_others_may_write_is_refused(path: Path) -> None:
    """A file that others may write is refused."""
    made(path)
    path.chmod(0o620)
    with pytest.raises(FailedPreconditionError, match="chmod 600"):
        read(path)


def test_table_finds_a_token_only_by_its_exact_text(path: Path) -> None:
    """The table finds a token by its exact text, and not by its hash or by similar text."""
    token = made(path)
    table = TokenTable(read(path) or [])
    assert table.find(hash_of(token)) is not None
    wrong = ["", token[:-1], f"{token}A", token.swapcase(), hash_of(token).hex(), f" {token}", "é", "x" * 100_000]
    assert [table.find(hash_of(text)) for text in wrong] == [None] * len(wrong)


def test_text_that_cannot_be_a_token_is_not_hashed() -> None:
    """A text that cannot be a token, because of its length or alphabet, is not hashed."""
    assert hash_of("a" * (tokens.TOKEN_CHARS_MAX + 1)) == b""
    assert hash_of("\udcff") == b""
    assert len(hash_of("a" * tokens.TOKEN_CHARS_MAX)) == 32
