"""A reader beside a writer that writes without a pause."""

import threading
from pathlib import Path

import pytest

from holdfast.journal import reader
from holdfast.journal.errors import JournalDamagedError
from holdfast.journal.file import FileJournal
from holdfast.journal.os_disk import OsDisk
from holdfast.journal.port import JournalConfig
from holdfast.journal.reader import JournalReader

LOOKS = 40


def read_beside_a_writer(folder: Path) -> int:
    """Opens the journal repeatedly while frames are written to it; returns the last position seen."""
    config = JournalConfig(segment_bytes=1 << 20, digest_version=1)
    journal = FileJournal.open(OsDisk(folder), config, now_ms=1, new_cluster_id=b"c" * 16)
    begun, stop = threading.Event(), threading.Event()

    def write() -> None:
        while not stop.is_set():
            journal.reserve(70_000)
            journal.write(b"x" * 60_000, 1, 0, 1)
            begun.set()

    writer = threading.Thread(target=write)
    writer.start()
    begun.wait()
    try:
        positions = [JournalReader(OsDisk(folder)).end_position for _ in range(LOOKS)]
    finally:
        stop.set()
        writer.join()
        journal.close()
    assert positions == sorted(positions)
    return positions[-1]


def test_frame_that_is_being_written_is_no_damage(tmp_path: Path) -> None:
    """A reader beside a writer never reports a half-written frame as damage."""
    assert read_beside_a_writer(tmp_path / "journal") > 0


def test_one_look_would_mistake_it_for_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a second look, a half-written frame is reported as damage within a few runs."""
    monkeypatch.setattr(reader, "_LOOKS", 1)
    for number in range(500):
        try:
            read_beside_a_writer(tmp_path / str(number))
        except JournalDamagedError:
            return
    pytest.fail("a single look never failed, so the other test proves nothing")
