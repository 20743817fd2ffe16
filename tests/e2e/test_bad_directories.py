"""Directories and settings with which a server refuses to start, without any change on disk."""

import os
import shutil
import zlib
from pathlib import Path

import pytest

from holdfast.errors import ExitCode
from holdfast.proto import taskqueue_public_pb2 as public
from tests.e2e.fleet import Fleet, Program
from tests.e2e.preloaded_fleet import loaded_fleet_in
from tests.e2e.preloaded_prompt import LoadedProgram
from tests.e2e.test_full_disk import mounted

FRAME_MAGIC_OFFSET = 512
EVERYWHERE = "0.0.0.0"  # noqa: S104 - the server must refuse it


@pytest.fixture
def fleet(loaded_fleet: Fleet) -> Fleet:
    """A fleet whose processes are forked from the preloaded program."""
    return loaded_fleet


@pytest.fixture(scope="module")
def whole(loaded: LoadedProgram, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cleanly closed directory with twenty jobs in twenty frames."""
    with loaded_fleet_in(tmp_path_factory.mktemp("whole"), loaded) as fleet:
        server, wire = fleet.server()
        for number in range(20):
            wire.new(key=str(number))
        assert server.stop() == 0
        return fleet.folder / "data"


@pytest.fixture
def data(whole: Path, tmp_path: Path) -> Path:
    """A copy of such a directory, for a test to damage."""
    return shutil.copytree(whole, tmp_path / "data")


def refused_start(fleet: Fleet, data: Path | str, *arguments: str, **environment: str) -> Program:
    """Starts a server that must fail without a traceback and without a ready line."""
    server = fleet.start("server", "--data", str(data), "--port", "0", *arguments, **environment)
    assert server.wait() != 0
    assert "Traceback" not in server.log
    assert server.output == ""
    return server


def contents(directory: Path) -> dict[str, bytes]:
    """Returns the contents of every file except the lock."""
    return {
        path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.is_file() and path.name != "LOCK"
    }


def first_segment(directory: Path) -> Path:
    """Returns the oldest segment, the only one with frames here."""
    return min(directory.glob("*.seg"))


def flip(path: Path, offset: int) -> None:
    """Flips one bit."""
    damaged = bytearray(path.read_bytes())
    damaged[offset] ^= 1
    path.write_bytes(damaged)


def test_all_problems_of_the_settings_are_told_at_once(fleet: Fleet) -> None:
    """The server lists all bad flags and variables together and exits with code 2."""
    server = refused_start(
        fleet,
        "data",
        "--lease-ms",
        "soon",
        "--host",
        EVERYWHERE,
        HOLDFAST_SLOTS="none",
        HOLDFAST_LAESE_MS="5",
    )
    assert server.wait() == ExitCode.USAGE
    assert "--lease-ms must be a whole number of milliseconds" in server.log
    assert "HOLDFAST_SLOTS must be" in server.log
    assert "HOLDFAST_LAESE_MS; did you mean HOLDFAST_LEASE_MS?" in server.log


def test_listening_beyond_loopback_must_be_asked_for(fleet: Fleet) -> None:
    """The server refuses a non-loopback address without --insecure, and names that flag."""
    server = refused_start(fleet, "data", "--host", EVERYWHERE)
    assert server.wait() == ExitCode.USAGE
    assert "--insecure" in server.log


def test_unknown_option_is_a_usage_error(fleet: Fleet) -> None:
    """A misspelt flag leads to exit code 2 and a message that names the flag."""
    server = refused_start(fleet, "data", "--leese-ms", "5")
    assert server.wait() == ExitCode.USAGE
    assert "--leese-ms" in server.log


def test_worker_with_a_bad_name_is_told_so(fleet: Fleet) -> None:
    """A worker with an invalid worker id exits with code 2 and a message."""
    _, wire = fleet.server()
    worker = fleet.start("worker", "--connect", wire.target, "--worker-id", "not a name")
    assert worker.wait() == ExitCode.USAGE
    assert "--worker-id must be" in worker.log
    assert "Traceback" not in worker.log


def test_damage_before_the_end_is_refused_with_its_place(fleet: Fleet, data: Path) -> None:
    """A server refuses a damaged frame before the last one, names file, offset and position, and changes nothing."""
    segment = first_segment(data)
    flip(segment, segment.stat().st_size // 2)
    before = contents(data)
    server = refused_start(fleet, data)
    assert server.wait() == ExitCode.REFUSED
    assert f"journal file '{segment.name}' is damaged at offset " in server.log
    assert ", position " in server.log
    assert "restore the directory from a backup" in server.log
    assert contents(data) == before


def test_damaged_last_frame_is_refused_and_can_be_repaired(fleet: Fleet, data: Path) -> None:
    """A server names the repair command for a damaged last frame, and repair cuts the frame and keeps a copy."""
    flip(first_segment(data), first_segment(data).stat().st_size - 30)
    before = contents(data)
    server = refused_start(fleet, data)
    assert server.wait() == ExitCode.REFUSED
    assert "holdfast journal repair" in server.log
    assert contents(data) == before
    repair = fleet.start("journal", "repair", str(data))
    assert repair.wait() == 0, repair.log
    (copy,) = data.glob("torn-*.bak")
    assert f"cut {copy.stat().st_size} bytes from the end and kept a copy in {copy.name}; lost 1 event" in repair.output
    _, wire = fleet.server(data=str(data))
    assert len(wire.all_jobs(public.QUEUED)) == 19


def test_repair_of_a_healthy_journal_says_that_there_is_nothing_to_do(fleet: Fleet, data: Path) -> None:
    """Repair of a healthy journal changes nothing and prints that there is nothing to repair."""
    before = contents(data)
    repair = fleet.start("journal", "repair", str(data))
    assert repair.wait() == 0, repair.log
    assert repair.output.startswith("nothing to repair; the journal ends at position ")
    assert contents(data) == before


def test_repair_refuses_damage_before_the_last_frame(fleet: Fleet, data: Path) -> None:
    """Repair refuses a journal that is damaged before the last frame, and changes nothing."""
    segment = first_segment(data)
    flip(segment, segment.stat().st_size // 2)
    before = contents(data)
    repair = fleet.start("journal", "repair", str(data))
    assert repair.wait() == ExitCode.REFUSED
    assert "is damaged at offset" in repair.log
    assert contents(data) == before


def test_repair_refuses_an_open_directory(fleet: Fleet) -> None:
    """Repair refuses a directory that a server has open, and names the server's process."""
    server, _ = fleet.server()
    repair = fleet.start("journal", "repair", "data")
    assert repair.wait() == ExitCode.UNREACHABLE
    assert f"process {server.pid}" in repair.log


def test_repair_of_a_missing_directory_says_so(fleet: Fleet) -> None:
    """Repair refuses a missing directory and does not create it."""
    repair = fleet.start("journal", "repair", "nowhere")
    assert repair.wait() == ExitCode.REFUSED
    assert "does not exist" in repair.log
    assert not (fleet.folder / "nowhere").exists()


def test_torn_tail_is_cut_with_a_copy(fleet: Fleet, data: Path) -> None:
    """A server cuts an incomplete last frame at its start, keeps a copy, and loses no acknowledged job."""
    segment = first_segment(data)
    with segment.open("ab") as file:
        file.write(segment.read_bytes()[FRAME_MAGIC_OFFSET : FRAME_MAGIC_OFFSET + 20])
    _, wire = fleet.server(data=str(data))
    assert len(wire.all_jobs(public.QUEUED)) == 20
    assert len(list(data.glob("torn-*.bak"))) == 1


@pytest.mark.parametrize("name", ["segment", "MANIFEST"])
def test_newer_format_is_refused_by_its_version(fleet: Fleet, data: Path, name: str) -> None:
    """A server refuses a file with a newer format, names both versions and changes nothing."""
    path = first_segment(data) if name == "segment" else data / name
    head = path.read_bytes()[:8] + (3).to_bytes(4, "big")
    path.write_bytes(head + zlib.crc32(head).to_bytes(4, "big") + path.read_bytes()[16:])
    before = contents(data)
    server = refused_start(fleet, data)
    assert server.wait() == ExitCode.REFUSED
    assert "has format version 3; this Holdfast reads versions 1 to 2" in server.log
    assert contents(data) == before


def test_missing_segment_is_refused(fleet: Fleet, data: Path) -> None:
    """A server refuses a directory with a missing segment instead of starting empty."""
    first_segment(data).unlink()
    assert refused_start(fleet, data).wait() == ExitCode.REFUSED


@pytest.mark.parametrize("command", ["server", "up"])
def test_data_path_that_is_a_file_is_refused(fleet: Fleet, tmp_path: Path, command: str) -> None:
    """A server refuses a file as its data directory, names it and leaves it unchanged."""
    (tmp_path / "file").write_text("mine")
    server = fleet.start(command, "--data", "file", "--port", "0")
    assert server.wait() == ExitCode.REFUSED
    assert "Traceback" not in server.log
    assert "file" in server.log
    assert (tmp_path / "file").read_text() == "mine"


def test_data_path_below_a_file_is_refused(fleet: Fleet, tmp_path: Path) -> None:
    """A server that cannot create its data directory names the path."""
    (tmp_path / "file").write_text("mine")
    assert "file/data" in refused_start(fleet, "file/data").log


def test_directory_that_cannot_be_written_is_refused(fleet: Fleet, tmp_path: Path) -> None:
    """A server refuses a read-only directory, and names it without a traceback."""
    if os.geteuid() == 0:
        with mounted(tmp_path / "read-only", "ro") as folder:
            server = refused_start(fleet, folder)
    else:
        (tmp_path / "read-only").mkdir(mode=0o500)
        server = refused_start(fleet, tmp_path / "read-only")
    assert "holdfast: " in server.log
    assert "read-only" in server.log.lower()
