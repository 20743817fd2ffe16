"""A process without free descriptors continues to write its journal."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.journal.file import FileJournal
from holdfast.journal.next_segment import NEXT_NAME
from holdfast.journal.port import JournalConfig
from holdfast_lab.simulation.disk import SimDisk

CONFIG = JournalConfig(segment_bytes=4_096, extent_bytes=1_024)
BODY = bytes(range(200))

EXHAUSTED = """
import asyncio, contextlib, os, resource, sys
from holdfast.ledger.recovery import recover
from holdfast.core import events
from holdfast.core.state import DIGEST_VERSION
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.journal.os_disk import OsDisk
from holdfast.journal.port import JournalConfig
from holdfast.journal.snapshot import list_snapshots
from holdfast.process.helper_process import HelperProcess
from holdfast.ledger.snapshot_process import maker_command

async def main(directory):
    loop = asyncio.get_running_loop()
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    disk = OsDisk(directory)
    config = JournalConfig(segment_bytes=4_096, extent_bytes=1_024, digest_version=DIGEST_VERSION)
    recovered = recover(disk, config, LedgerConfig(), now_ms=1, new_cluster_id=bytes(16))
    journal, ledger = recovered.journal, recovered.ledger
    with contextlib.suppress(OSError):
        while True:
            os.open(os.devnull, os.O_RDONLY)
    for number in range(300):
        event = events.Started(ledger.state.last_ms + 1, number + 1)
        body = events.join([events.encode_one(event)])
        ledger.apply(event)
        journal.write(body, 1, ledger.digest)
    print(len(journal.segments()))
    made = loop.create_future()
    HelperProcess(loop, lambda: maker_command(directory, 0), disk.descriptors).start(made.set_result)
    print(repr(await made), len(list_snapshots(disk)))
    print(len(journal.remove_segments(journal.segments()[2].last_position)))
    journal.close()

# A server runs on uvloop, whose error at a missing descriptor is another one than that of asyncio.
make_loop = __import__(sys.argv[2]).new_event_loop
with asyncio.Runner(loop_factory=make_loop) as runner:
    runner.run(main(sys.argv[1]))
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_process_without_descriptors_rolls_segments_and_makes_a_snapshot(tmp_path: Path, loop: str) -> None:
    """While all other descriptors are in use, segments are rolled and removed, and a snapshot is written."""
    command = [sys.executable, "-c", EXHAUSTED, str(tmp_path / "data"), loop]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    segments, made, removed = done.stdout.split("\n")[:3]
    assert int(segments) > 4
    assert (made, removed) == ("'' 1", "3")


def test_journal_without_descriptors_stays_in_its_segment() -> None:
    """Without any free descriptor frames are written to the old segment, which is rolled once there is one."""
    disk = SimDisk(random.Random(0))
    journal = FileJournal.open(disk, CONFIG, now_ms=1, new_cluster_id=bytes(16))
    disk.faults.no_descriptors = True
    for _ in range(60):
        journal.write(BODY, 1, 0)
    assert [info.is_sealed for info in journal.segments()] == [False]
    disk.faults.no_descriptors = False
    for _ in range(60):
        journal.write(BODY, 1, 0)
    assert len(journal.segments()) > 1
    assert [frame.first_position for frame in journal.replay()] == list(range(1, 121))
    journal.close()


def test_next_segment_is_opened_ahead_of_need() -> None:
    """A roll creates no file, because the next one was created when the segment was half full."""
    disk = SimDisk(random.Random(0))
    journal = FileJournal.open(disk, CONFIG, now_ms=1, new_cluster_id=bytes(16))
    while NEXT_NAME not in disk.names():
        journal.write(BODY, 1, 0)
    assert len(journal.segments()) == 1
    disk.faults.no_descriptors = True
    while len(journal.segments()) == 1:
        journal.write(BODY, 1, 0)
    assert journal.end_position < 60
    disk.faults.no_descriptors = False
    journal.close()
    assert NEXT_NAME not in disk.names()


def test_file_ahead_is_given_up_for_frames() -> None:
    """On a full disk the space of the next file is used for frames, and a start removes a leftover file."""
    disk = SimDisk(random.Random(0))
    journal = FileJournal.open(disk, CONFIG, now_ms=1, new_cluster_id=bytes(16))
    while NEXT_NAME not in disk.names():
        journal.write(BODY, 1, 0)
    disk.faults.free_bytes = 0
    while journal.reserve(1_000):
        pass
    assert NEXT_NAME not in disk.names()
    disk.faults.free_bytes = None
    while NEXT_NAME not in disk.names():
        journal.write(BODY, 1, 0)
    disk.kill()
    FileJournal.open(disk, CONFIG, now_ms=1, new_cluster_id=bytes(16))
    assert NEXT_NAME not in disk.names()
