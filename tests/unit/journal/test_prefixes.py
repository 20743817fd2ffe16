"""Opens every byte prefix of a journal of several segments."""

import pytest

from holdfast.journal.errors import JournalDamagedError
from holdfast.journal.manifest import MANIFEST_NAME
from holdfast.journal.segment import HEADER_BYTES
from tests.unit.journal.workload import (
    check_contiguous,
    closed_files,
    disk_with,
    empty_disk,
    open_journal,
    segments_of,
    write_frames,
)


def _history() -> list[tuple[dict[str, bytes], dict[int, int]]]:
    """Return, for each segment, the files while it was the newest, and the offsets at which its frames end."""
    disk = empty_disk()
    journal = open_journal(disk)
    history: list[tuple[dict[str, bytes], dict[int, int]]] = []
    ends: dict[int, int] = {HEADER_BYTES: 0}
    files = disk.files()
    for _ in range(18):
        name = journal.segments()[-1].name
        write_frames(journal, 1)
        newest = journal.segments()[-1]
        if newest.name != name:
            history.append((files, ends))
            ends = {HEADER_BYTES: newest.first_position - 1}
        ends[newest.bytes] = journal.end_position
        files = disk.files()
    return [*history, (files, ends)]


HISTORY = _history()


@pytest.mark.parametrize("number", range(len(HISTORY)))
def test_every_prefix_of_the_newest_segment_has_its_outcome(number: int) -> None:
    """A prefix that ends in the header is refused, at a frame's end accepted; elsewhere the last frame is cut."""
    files, ends = HISTORY[number]
    name = segments_of(files)[-1]
    for size in range(max(ends) + 1):
        disk = disk_with({**files, name: files[name][:size]})
        if size < HEADER_BYTES:
            with pytest.raises(JournalDamagedError):
                open_journal(disk)
            continue
        journal = open_journal(disk)
        assert journal.end_position == ends[max(end for end in ends if end <= size)]
        check_contiguous(list(journal.replay()))
        assert any(kept.endswith(".bak") for kept in disk.files()) == (size not in ends)


def test_every_shorter_file_of_a_closed_journal_is_refused() -> None:
    """After a clean close, any missing byte at the end of any file is refused."""
    files = closed_files(6)
    for name, data in files.items():
        for size in range(len(data)):
            with pytest.raises(JournalDamagedError):
                open_journal(disk_with({**files, name: data[:size]}))


def test_sealed_segment_cut_at_a_frame_boundary_is_refused() -> None:
    """A sealed segment with missing frames at its end is refused, because it does not link to the next segment."""
    files, _ = HISTORY[-1]
    _, ends = HISTORY[0]
    name = segments_of(files)[0]
    for end in sorted(ends)[:-1]:
        with pytest.raises(JournalDamagedError, match="the next one is"):
            open_journal(disk_with({**files, name: files[name][:end]}))


def test_the_history_has_several_segments() -> None:
    """The history of these tests has at least three segments."""
    assert len(HISTORY) >= 3
    assert MANIFEST_NAME in HISTORY[0][0]
