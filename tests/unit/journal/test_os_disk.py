"""The disk of the operating system: modes, locks, reserved space, and a journal on it."""

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.journal.errors import DirectoryLockedError, JournalFailedError, JournalForbiddenError
from holdfast.journal.file import FileJournal
from holdfast.journal.os_disk import LOCK_NAME, OsDisk
from holdfast.journal.port import JournalConfig
from tests.unit.journal.workload import CLUSTER_ID, CONFIG, check_contiguous, write_frames

OPENER = """
import sys
from holdfast.journal.errors import DirectoryLockedError
from holdfast.journal.file import FileJournal
from holdfast.journal.os_disk import OsDisk
from holdfast.journal.port import JournalConfig
try:
    journal = FileJournal.open(OsDisk(sys.argv[1]), JournalConfig(), now_ms=1, new_cluster_id=bytes(16))
except DirectoryLockedError as error:
    print("locked by", error.holder_pid, flush=True)
else:
    journal.write(b"from the child", 1, 0)
    print("opened", journal.epoch, flush=True)
    sys.stdin.read()
"""


def open_on(directory: Path, config: JournalConfig = CONFIG) -> FileJournal:
    return FileJournal.open(OsDisk(directory), config, now_ms=1, new_cluster_id=CLUSTER_ID)


@pytest.fixture
def child(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-c", OPENER, str(tmp_path / "j")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        yield process
        process.kill()


def _line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()


def test_journal_comes_back_from_a_real_disk(tmp_path: Path) -> None:
    """Frames of several segments are replayed after closing and reopening."""
    journal = open_on(tmp_path / "j")
    write_frames(journal, 30)
    assert len(journal.segments()) > 3
    journal.close()
    journal = open_on(tmp_path / "j")
    frames = list(journal.replay())
    check_contiguous(frames)
    assert len(frames) == 30
    journal.close()


def test_directory_and_files_are_private(tmp_path: Path) -> None:
    """The directory is 0700 and every file in it 0600, whatever the umask allows."""
    journal = open_on(tmp_path / "j")
    write_frames(journal, 2)
    journal.close()
    assert stat.S_IMODE((tmp_path / "j").stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "j").iterdir()} == {0o600}


def test_second_process_is_refused(tmp_path: Path, child: subprocess.Popen[bytes]) -> None:
    """While one process has locked the directory, another gets an error with its pid and changes nothing."""
    assert _line(child) == b"opened 1\n"
    before = {path.name: path.read_bytes() for path in (tmp_path / "j").iterdir()}
    with pytest.raises(DirectoryLockedError, match=f"process {child.pid}") as caught:
        open_on(tmp_path / "j")
    assert caught.value.holder_pid == child.pid
    assert {path.name: path.read_bytes() for path in (tmp_path / "j").iterdir()} == before


def test_lock_ends_with_a_killed_process(tmp_path: Path, child: subprocess.Popen[bytes]) -> None:
    """After kill -9 the next process opens the directory in the next epoch, with all frames that were written."""
    assert _line(child) == b"opened 1\n"
    child.kill()
    child.wait()
    journal = open_on(tmp_path / "j")
    assert journal.epoch == 2
    assert [frame.body for frame in journal.replay()] == [b"from the child"]
    journal.close()


def test_started_processes_do_not_inherit_the_lock(tmp_path: Path) -> None:
    """A child process that outlives its parent's journal does not keep the directory locked."""
    journal = open_on(tmp_path / "j")
    program = "print('begun', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=False
    ) as process:
        # Until exec, the child has all descriptors of its parent.
        assert _line(process) == b"begun\n"
        journal.close()
        open_on(tmp_path / "j").close()
        process.kill()


def test_lock_is_not_listed(tmp_path: Path) -> None:
    """The lock file is not listed among the files of the journal."""
    disk = OsDisk(tmp_path)
    disk.lock()
    assert (tmp_path / LOCK_NAME).read_text() == f"{os.getpid()}\n"
    assert disk.names() == []
    disk.unlock()


def test_create_never_overwrites(tmp_path: Path) -> None:
    """Creating a file that exists raises an error."""
    disk = OsDisk(tmp_path)
    disk.create("a").close()
    with pytest.raises(FileExistsError):
        disk.create("a")


def test_names_stay_inside_the_directory(tmp_path: Path) -> None:
    """A name with a path separator raises AssertionError."""
    with pytest.raises(AssertionError):
        OsDisk(tmp_path).create("../outside")


def test_reserve_grows_with_zeros_and_keeps_contents(tmp_path: Path) -> None:
    """Reserved bytes are zeros, existing bytes stay, and a smaller size changes nothing."""
    file = OsDisk(tmp_path).create("a")
    file.write_at(0, b"abc")
    file.reserve(1_000)
    file.reserve(10)
    assert file.size() == 1_000
    assert file.read_at(0, 5_000) == b"abc" + bytes(997)
    file.close()
    file.close()


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL])
def test_reserve_works_without_fallocate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """On a file system without fallocate, zeros are written instead."""

    def unsupported(*_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", unsupported)
    file = OsDisk(tmp_path).create("a")
    file.write_at(0, b"abc")
    file.reserve(3 << 20)
    assert file.size() == 3 << 20
    assert file.read_at(0, 4) == b"abc\0"
    file.close()


def test_failed_reserve_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the disk becomes full during a reservation, the part that was allocated is freed."""

    def partial(fd: int, offset: int, size: int) -> None:
        os.ftruncate(fd, offset + size // 2)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", partial)
    file = OsDisk(tmp_path).create("a")
    file.write_at(0, b"abc")
    with pytest.raises(OSError, match="No space"):
        file.reserve(1_000)
    assert file.size() == 3
    file.close()


def test_directory_that_cannot_be_written_is_an_error_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read-only directory raises an error of the journal, and the lock is released."""

    def read_only(*_: object, **__: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    OsDisk(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", read_only)
        with pytest.raises(JournalForbiddenError, match="Read-only"):
            open_on(tmp_path)
    open_on(tmp_path).close()


def test_deleting_the_lock_file_lets_no_second_process_in(tmp_path: Path, child: subprocess.Popen[bytes]) -> None:
    """After the lock file was deleted a second process is still refused, because the directory is locked too."""
    assert _line(child) == b"opened 1\n"
    (tmp_path / "j" / LOCK_NAME).unlink()
    with pytest.raises(DirectoryLockedError):
        open_on(tmp_path / "j")


def test_deleted_segment_is_noticed_before_anything_more_is_acknowledged(tmp_path: Path) -> None:
    """A write to a deleted segment fails, because the file would be lost with the process."""
    journal = open_on(tmp_path / "j")
    write_frames(journal, 1)
    for path in (tmp_path / "j").iterdir():
        path.unlink()
    with pytest.raises(JournalFailedError):
        journal.write(b"x", 1, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
def test_pin_of_root_counts_as_held_for_another_user(tmp_path: Path) -> None:
    """The directory's owner sees a pin of root as held and can remove it later; an unreadable pin counts as held."""
    directory = tmp_path / "j"
    disk = OsDisk(directory)
    os.chown(directory, _NOBODY, _NOBODY)
    hold = disk.hold("pin-1-1-0")
    (directory / "pin-1-1-1").touch(mode=0o600)
    assert _as_nobody(directory, "pin-1-1-0", "pin-1-1-1") == "False False"
    hold.release()
    (directory / "pin-1-1-0").touch(mode=0o600)
    os.chown(directory / "pin-1-1-0", _NOBODY, _NOBODY)
    assert _as_nobody(directory, "pin-1-1-0") == "True"


_NOBODY = 65_534


def _as_nobody(directory: Path, *names: str) -> str:
    """Return the results of `reap` for these pins as another user, in a child process."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:  # pragma: no cover - the child
        try:
            os.chdir(directory)
            os.setgroups([])
            os.setgid(_NOBODY)
            os.setuid(_NOBODY)
            os.write(writing, " ".join(str(OsDisk(".").reap(name)) for name in names).encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(pid, 0)
    with open(reading, "rb") as pipe:  # noqa: PTH123 - a descriptor
        return pipe.read().decode()


def test_temporary_files_of_others_are_left_alone(tmp_path: Path) -> None:
    """An opening removes temporary files of the journal, but no other files with the same suffix."""
    directory = tmp_path / "j"
    directory.mkdir()
    ours = directory / "snapshot-00000000000000000007.snap.tmp"
    for path in (ours, directory / "thesis.tmp"):
        path.write_bytes(b"x")
    open_on(directory).close()
    assert not ours.exists()
    assert (directory / "thesis.tmp").exists()
