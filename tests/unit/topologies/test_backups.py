"""Backups of a directory: refusals, and the state after a failure."""

import os
import shutil
import signal
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.core import commands
from holdfast.core.ledger import LedgerConfig
from holdfast.core.model import NewJob, Template
from holdfast.core.owner import Ownership
from holdfast.errors import FailedPreconditionError, HoldfastError, InvalidArgumentError
from holdfast.journal.backup import Backup, NotABackupError, Progress
from holdfast.journal.directory_archive import DirectoryArchive
from holdfast.journal.directory_marks import MarkedDirectoryError
from holdfast.journal.errors import JournalFullError
from holdfast.journal.os_disk import OsDisk
from holdfast.journal.port import JournalConfig
from holdfast.ledger.node_identity import claim
from holdfast.ledger.snapshots import take_snapshot
from holdfast.ledger.time_travel import verify
from holdfast.server.auth import tokens
from holdfast.topologies.backup import take_backup
from holdfast.topologies.backup_restore import RestoredDirectory, restore_backup
from tests.e2e.test_full_disk import mounted
from tests.unit.ledger.test_time_travel import LEASE, Recorder

TAKEN_MS = 1_800_000_000_000


def quiet(_stage: str) -> Progress:
    return lambda _done, _total: None


def submit(job_id: str, payload: bytes = b"payload") -> commands.Submit:
    return commands.Submit([Template("echo")], [NewJob(job_id, 0, payload)])


def back_up(folder: Path, target: str, source: str = "data") -> Backup:
    return take_backup(folder / source, folder / target, now_ms=TAKEN_MS, watch=quiet)


def restore(folder: Path, backup: str, target: str = "restored") -> RestoredDirectory:
    return restore_backup(folder / backup, folder / target, None, now_ms=TAKEN_MS, watch=quiet)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a data directory of two jobs, one of them leased, with tokens, and with a backup of it."""
    recorder = Recorder(tmp_path / "data")
    recorder.do(submit("a"), submit("b"), LEASE)
    recorder.journal.close()
    tokens.create(tmp_path / "data" / tokens.FILE_NAME, "ci", (), now_ms=1, expires_at_ms=0)
    back_up(tmp_path, "backup")
    return tmp_path


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) * 3 // 4] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("spoil", [flipped, Path.unlink])
@pytest.mark.parametrize("pattern", ["*.seg", "MANIFEST", "tokens.json", "BACKUP"])
def test_backup_with_a_damaged_file_is_refused(pattern: str, spoil: Callable[[Path], None], folder: Path) -> None:
    """A backup with a flipped bit or a missing file is refused by the file's name, and nothing is restored."""
    path = next((folder / "backup").glob(pattern))
    spoil(path)
    with pytest.raises(HoldfastError, match=path.name) as caught:
        restore(folder, "backup")
    assert not (folder / "restored").exists()
    if pattern == "*.seg" and spoil is flipped:
        assert "position" in caught.value.message


def test_every_byte_of_a_segment_matters(folder: Path) -> None:
    """A flipped bit anywhere in a segment is detected."""
    path = next((folder / "backup").glob("*.seg"))
    good = path.read_bytes()
    for index in range(0, len(good), 41):
        path.write_bytes(bytes([*good[:index], good[index] ^ 1, *good[index + 1 :]]))
        with pytest.raises(HoldfastError):
            restore(folder, "backup")
    path.write_bytes(good)
    assert restore(folder, "backup").jobs == {"QUEUED": 2}


def test_restored_directory_has_no_lease_and_is_sound(folder: Path) -> None:
    """A restored directory has no leases and verifies, with a position far beyond that of the backup."""
    made = restore(folder, "backup")
    assert (made.leases_ended, made.position, made.beside) == (1, 3, [tokens.FILE_NAME])
    proof = verify(DirectoryArchive(OsDisk(folder / "restored")), lambda _position, _end: None)
    assert (proof.jobs, proof.end_position) == (2, TAKEN_MS * 1_024)


def test_files_are_for_their_owner_alone(folder: Path) -> None:
    """Files of backups and of restored directories are accessible only to their owner."""
    back_up(folder, "one.tar")
    restore(folder, "one.tar")
    for name in ("backup", "restored"):
        assert (folder / name).stat().st_mode & 0o777 == 0o700
        assert {path.stat().st_mode & 0o777 for path in (folder / name).iterdir()} == {0o600}
    assert (folder / "one.tar").stat().st_mode & 0o777 == 0o600


def test_backup_on_a_disk_that_cannot_be_written_is_restored(folder: Path) -> None:
    """A restore writes nothing to the backup; root ignores permissions, so that the files' times are compared."""
    before = sorted((path.name, path.stat().st_mtime_ns) for path in (folder / "backup").iterdir())
    (folder / "backup").chmod(0o500)
    restore(folder, "backup")
    assert sorted((path.name, path.stat().st_mtime_ns) for path in (folder / "backup").iterdir()) == before


def test_damaged_archive_is_refused(folder: Path) -> None:
    """A truncated, modified or foreign archive is refused, and its unpacked files are removed."""
    for name in ("good.tar", "good.tar.gz"):
        back_up(folder, name)
        whole = (folder / name).read_bytes()
        middle = (whole.find(b"HFSEGMNT") if name == "good.tar" else len(whole) // 2) + 3
        for bad in (whole[:middle], bytes([*whole[:middle], whole[middle] ^ 1, *whole[middle + 1 :]]), b"no archive"):
            (folder / f"bad-{name}").write_bytes(bad)
            with pytest.raises(HoldfastError):
                restore(folder, f"bad-{name}")
            assert not (folder / "restored").exists()
        assert restore(folder, name, f"of-{name}").jobs == {"QUEUED": 2}
    assert not list(folder.glob("*.partial-*"))


def test_nothing_is_replaced(folder: Path) -> None:
    """An existing target, a directory that is not empty and a missing path are refused."""
    with pytest.raises(FailedPreconditionError, match="exists already"):
        back_up(folder, "backup")
    with pytest.raises(FailedPreconditionError, match="not empty"):
        restore(folder, "backup", "data")
    with pytest.raises(InvalidArgumentError, match="does not exist"):
        back_up(folder, "nowhere/backup")
    with pytest.raises(InvalidArgumentError, match="no backup"):
        restore(folder, "nothing")
    (folder / "empty").mkdir()
    back_up(folder, "empty")
    assert restore(folder, "empty").position == 3


def killed_at(stage: str, folder: Path, target: str) -> None:
    """Forks a process that makes a backup and is killed at the start of this stage."""
    pid = os.fork()
    if pid == 0:  # pragma: no cover - the child

        def watch(begun: str) -> Progress:
            if begun == stage:
                os.kill(os.getpid(), signal.SIGKILL)
            return lambda _done, _total: None

        try:
            take_backup(folder / "data", folder / target, now_ms=TAKEN_MS, watch=watch)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


@pytest.mark.parametrize("stage", ["copying", "verifying the copy", "comparing"])
def test_killed_backup_is_never_taken_for_a_whole_one(stage: str, folder: Path) -> None:
    """A killed backup leaves only a partial directory that is refused, and the next backup succeeds."""
    killed_at(stage, folder, "new")
    (left,) = folder.glob("new.partial-*")
    with pytest.raises(HoldfastError, match="not a complete backup"):
        restore(folder, left.name)
    assert not (folder / "restored").exists()
    back_up(folder, "new")
    assert restore(folder, "new").position == 3


def test_killed_packing_leaves_no_archive(folder: Path) -> None:
    """A killed packing leaves no archive under the final name."""
    killed_at("packing", folder, "new.tar")
    assert not (folder / "new.tar").exists()
    back_up(folder, "new.tar")


def test_killed_restore_leaves_a_directory_that_no_server_opens(folder: Path) -> None:
    """A directory of a killed restore is not opened, and must be removed before the next restore."""
    pid = os.fork()
    if pid == 0:  # pragma: no cover - the child

        def kill(_position: int, _event: object) -> bool:
            os.kill(os.getpid(), signal.SIGKILL)
            return False

        try:
            restore_backup(folder / "backup", folder / "restored", kill, now_ms=TAKEN_MS, watch=quiet)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    with pytest.raises(MarkedDirectoryError, match="restore again"):
        Recorder(folder / "restored")
    with pytest.raises(FailedPreconditionError, match="RESTORING"):
        restore(folder, "backup")
    shutil.rmtree(folder / "restored")
    assert restore(folder, "backup").position == 3


def test_full_disk_is_told_and_left_as_it_was(folder: Path) -> None:
    """On a full disk a backup to a directory or archive, and a restore, fail and leave no files."""
    recorder = Recorder(folder / "large")
    recorder.do(*(submit(f"job-{number}", os.urandom(500_000)) for number in range(4)))
    recorder.journal.close()
    back_up(folder, "good", "large")
    with mounted(folder / "small", "size=1m") as small:
        for target in ("small/backup", "small/backup.tar.gz"):
            with pytest.raises(JournalFullError, match="no space"):
                back_up(folder, target, "large")
            assert not list(small.iterdir())
        with pytest.raises(JournalFullError, match="no space"):
            restore(folder, "good", "small/data")
        assert not list(small.iterdir())


def test_journal_without_its_beginning_is_backed_up_with_a_snapshot(tmp_path: Path) -> None:
    """A backup of a journal without its first segments includes the snapshot that the first frame needs."""
    recorder = Recorder(tmp_path / "data", JournalConfig(segment_bytes=1_024))
    recorder.do(*(submit(f"early-{number}") for number in range(20)))
    take_snapshot(recorder.archive, LedgerConfig())
    recorder.do(*(submit(f"late-{number}") for number in range(20)))
    position = take_snapshot(recorder.archive, LedgerConfig())
    assert recorder.journal.remove_segments(position // 2)
    recorder.journal.close()
    made = back_up(tmp_path, "backup")
    assert (made.copied.first_position > 1, len(list((tmp_path / "backup").glob("*.snap")))) == (True, 1)
    assert restore(tmp_path, "backup").jobs == {"QUEUED": 40}


def test_node_keeps_its_part_of_the_keys(tmp_path: Path) -> None:
    """A restored directory belongs to the same node as before, and other nodes are refused."""
    claim(tmp_path / "data", Ownership(index=1, nodes=3))
    recorder = Recorder(tmp_path / "data")
    recorder.do(submit("a"))
    recorder.journal.close()
    back_up(tmp_path, "backup")
    restore(tmp_path, "backup")
    claim(tmp_path / "restored", Ownership(index=1, nodes=3))
    with pytest.raises(FailedPreconditionError, match="belongs to node 1 of 3"):
        claim(tmp_path / "restored", Ownership(index=0, nodes=3))


def test_backup_is_not_opened_for_writing(folder: Path) -> None:
    """A backup is not opened for writing, because that would repeat tokens."""
    with pytest.raises(MarkedDirectoryError, match="holdfast journal restore"):
        Recorder(folder / "backup")
    shutil.rmtree(folder / "data")
    assert restore(folder, "backup", "data").position == 3


def _member(name: str, kind: bytes = tarfile.REGTYPE, linked: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, linked
    return member


@pytest.mark.parametrize(
    "members",
    [
        [_member("../x")],
        [_member("..")],
        [_member("")],
        [_member("/etc/x")],
        [_member("a\n")],
        [_member(".hidden")],
        [_member("x" * 300)],
        [_member("x"), _member("x")],
        [_member("x", tarfile.SYMTYPE, "/etc/passwd")],
        [_member("x", tarfile.LNKTYPE, "/etc/passwd")],
        [_member("x", tarfile.CHRTYPE)],
        [_member("x", tarfile.DIRTYPE)],
        [_member("x", tarfile.GNUTYPE_SPARSE)],
    ],
    ids=lambda members: repr(members[-1].name[:10]) + members[-1].type.decode(),
)
def test_archive_with_unknown_members_is_refused(members: list[tarfile.TarInfo], folder: Path) -> None:
    """An archive with members that no backup has is refused, and nothing is written."""
    before = sorted(folder.rglob("*"))
    with tarfile.open(folder / "odd.tar", "w") as tar:
        for member in members:
            tar.addfile(member)
    with pytest.raises(NotABackupError):
        restore(folder, "odd.tar")
    (folder / "odd.tar").unlink()
    assert sorted(folder.rglob("*")) == before
