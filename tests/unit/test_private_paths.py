"""Private directories and files: their permissions when created, and the paths that are refused."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.errors import FailedPreconditionError
from holdfast.journal.os_disk import OsDisk
from holdfast.process.private_paths import check_directory, make_directory, prepare_directory
from holdfast.process.private_postgres import PrivatePostgres
from holdfast.server.auth import certificates, tokens
from holdfast.server.auth.permissions import Scope
from holdfast.server.protection import protect
from holdfast.settings import Settings
from holdfast.topologies.zookeeper.private_ensemble import PrivateZooKeeper

NOBODY = 65_534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The directories that were synced, in order."""
    found: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        found.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    return found


@pytest.mark.parametrize("make", [make_directory, OsDisk, prepare_directory])
def test_missing_parents_are_made_private_and_durable(
    make: Callable[[Path], object], tmp_path: Path, synced: list[str]
) -> None:
    """Every created directory has mode 0700 and is synced into its parent, whatever the umask."""
    before = os.umask(0)
    try:
        make(tmp_path / "a" / "b" / "c")
    finally:
        os.umask(before)
    assert [mode_of(tmp_path / part) for part in ("a", "a/b", "a/b/c")] == [0o700] * 3
    assert synced == [str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a/b")]


@pytest.mark.parametrize("mode", [0o777, 0o755, 0o770, 0o701, 0o720])
def test_directory_that_others_may_use_is_refused(mode: int, tmp_path: Path) -> None:
    """The error names the expected owner and modes, and the actual mode."""
    (tmp_path / "job").touch()
    tmp_path.chmod(mode)
    with pytest.raises(FailedPreconditionError, match="0700 or 0750") as refused:
        prepare_directory(tmp_path)
    assert f"{mode:04o}" in refused.value.message
    assert refused.value.reason == "DIRECTORY_NOT_PRIVATE"
    assert mode_of(tmp_path) == mode


def test_group_may_list_the_directory(tmp_path: Path) -> None:
    """Mode 0750 is accepted, because the files in the directory are 0600."""
    (tmp_path / "job").touch()
    tmp_path.chmod(0o750)
    prepare_directory(tmp_path)
    assert mode_of(tmp_path) == 0o750


def test_empty_directory_is_taken_over(tmp_path: Path) -> None:
    """An empty directory of this user becomes private, so that `mkdir data` is no mistake."""
    tmp_path.chmod(0o755)
    prepare_directory(tmp_path)
    assert mode_of(tmp_path) == 0o700


@as_root
@pytest.mark.parametrize("mode", [0o700, 0o777])
def test_directory_of_another_user_is_refused(mode: int, tmp_path: Path) -> None:
    """A directory of another user is refused, even for root and even if it is empty."""
    tmp_path.chmod(mode)
    os.chown(tmp_path, NOBODY, -1)
    with pytest.raises(FailedPreconditionError, match="chown -R root") as refused:
        prepare_directory(tmp_path)
    assert refused.value.reason == "DIRECTORY_NOT_PRIVATE"
    assert mode_of(tmp_path) == mode


def test_app_does_not_open_a_directory_that_others_may_change(tmp_path: Path) -> None:
    """The SDK refuses a directory under the same rule as a server."""
    data = tmp_path / "data"
    with Holdfast(str(data)) as app:
        app.stats()
    before = sorted(path.name for path in data.iterdir())
    data.chmod(0o777)
    with pytest.raises(Exception, match="0700 or 0750"), Holdfast(str(data)) as app:
        app.stats()
    assert sorted(path.name for path in data.iterdir()) == before


@pytest.mark.parametrize("private", [PrivatePostgres, PrivateZooKeeper])
def test_private_engine_does_not_start_where_others_may_write(
    private: Callable[[Path], PrivatePostgres | PrivateZooKeeper], tmp_path: Path
) -> None:
    """A private engine creates nothing in a directory that others may write."""
    folder = tmp_path / "engine"
    folder.mkdir()
    (folder / "left").touch()
    folder.chmod(0o777)
    with pytest.raises(FailedPreconditionError) as refused:
        private(folder).start()
    if refused.value.reason in {"POSTGRES_MISSING", "ZOOKEEPER_MISSING"}:
        pytest.skip(refused.value.message)
    assert refused.value.reason == "DIRECTORY_NOT_PRIVATE"
    assert [path.name for path in folder.iterdir()] == ["left"]


@as_root
def test_tokens_of_another_user_are_refused(tmp_path: Path) -> None:
    """A token file that belongs to another user is refused."""
    path = tmp_path / "tokens.json"
    tokens.create(path, "admin", [Scope.ADMIN], now_ms=1)
    os.chown(path, NOBODY, -1)
    with pytest.raises(FailedPreconditionError, match="expected it to belong to root"):
        tokens.read(path)


def test_tokens_that_others_may_read_are_refused(tmp_path: Path) -> None:
    """A token file may be readable for the group, but not for others."""
    path = tmp_path / "tokens.json"
    tokens.create(path, "admin", [Scope.ADMIN], now_ms=1)
    path.chmod(0o640)
    assert tokens.read(path)
    path.chmod(0o644)
    with pytest.raises(FailedPreconditionError, match="0644") as refused:
        tokens.read(path)
    assert refused.value.reason == "TOKENS_UNUSABLE"
    assert "chmod 600" in refused.value.message
    assert "remove" not in refused.value.message
    assert "backup" not in refused.value.message


def test_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    """A TLS key is read only from a private file."""
    for name in ("server.pem", "server.key"):
        (tmp_path / name).write_text("not looked at")
        (tmp_path / name).chmod(0o644)
    with pytest.raises(FailedPreconditionError, match=r"server\.key.*chmod 600") as refused:
        certificates.read(str(tmp_path / "server.pem"), str(tmp_path / "server.key"))
    assert refused.value.reason == "TLS_UNUSABLE"


def test_file_of_tokens_in_a_directory_that_others_may_change_is_refused(tmp_path: Path) -> None:
    """A token file in a directory that others may change is refused, because they could remove it."""
    tmp_path.chmod(0o755)
    path = tmp_path / "own.json"
    tokens.create(path, "admin", [Scope.ADMIN], now_ms=1)
    settings = Settings(tokens=str(path), data=":memory:")
    protect(settings)
    tmp_path.chmod(0o777)
    with pytest.raises(FailedPreconditionError, match="lets no other user write"):
        protect(settings)


def test_token_is_not_made_in_a_directory_that_others_may_change(tmp_path: Path) -> None:
    """Creating a token in a directory that others may change is refused, and leaves no file."""
    (tmp_path / "job").touch()
    tmp_path.chmod(0o777)
    with pytest.raises(FailedPreconditionError, match="lets no other user write") as refused:
        tokens.create(tmp_path / "tokens.json", "admin", [Scope.ADMIN], now_ms=1)
    assert refused.value.reason == "DIRECTORY_NOT_PRIVATE"
    assert [path.name for path in tmp_path.iterdir()] == ["job"]


def test_empty_directory_that_gets_tokens_becomes_private(tmp_path: Path) -> None:
    """An empty directory becomes private when a token is created in it, so that the server accepts it."""
    tmp_path.chmod(0o777)
    tokens.create(tmp_path / "tokens.json", "admin", [Scope.ADMIN], now_ms=1)
    assert mode_of(tmp_path) == 0o700


def test_check_changes_nothing(tmp_path: Path) -> None:
    """Only `prepare_directory` makes an empty directory private, and `check_directory` changes nothing."""
    tmp_path.chmod(0o755)
    with pytest.raises(FailedPreconditionError):
        check_directory(tmp_path)
    assert mode_of(tmp_path) == 0o755
