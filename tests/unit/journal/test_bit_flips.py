"""Flips every single bit of a small journal and checks the outcome that docs/internals/journal-format.md promises."""

from collections import Counter
from enum import Enum

import pytest

from holdfast.journal.errors import JournalDamagedError
from holdfast.journal.frame import FRAME_OVERHEAD, SECTOR_BYTES
from holdfast.journal.manifest import MANIFEST_NAME
from holdfast.journal.segment import read_header
from holdfast.journal.walk import FrameWalker
from tests.unit.journal.workload import (
    ROOMY,
    body_of,
    check_contiguous,
    closed_files,
    crashed_files,
    disk_with,
    empty_disk,
    open_journal,
    segments_of,
)


class Outcome(Enum):
    """The possible outcomes of opening the journal."""

    REFUSED = "refused, and only a backup helps"
    REPAIRABLE = "refused, and the message names the repair command"
    CUT = "opened; the damaged data is cut and a copy is kept"


def outcome_of(files: dict[str, bytes], name: str, bit: int) -> Outcome:
    """Open a copy with one flipped bit; assert that no frame is missing and that a refusal changes nothing."""
    disk = disk_with(files)
    disk.flip_bit(name, bit)
    before = disk.files()
    try:
        journal = open_journal(disk)
    except JournalDamagedError as error:
        assert disk.files() == before
        return Outcome.REPAIRABLE if error.is_repairable else Outcome.REFUSED
    assert journal.end_position == open_journal(disk_with(files)).end_position
    assert any(kept.endswith(".bak") for kept in disk.files())
    return Outcome.CUT


def frame_ends(files: dict[str, bytes], name: str) -> list[int]:
    """Return the end offsets of a segment's frames, beginning with the end of its header."""
    file = disk_with(files).open(name)
    walker = FrameWalker(file, read_header(file, name))
    return [walker.offset, *(walker.offset for _ in walker.frames())]


def expected_in_newest(ends: list[int], at: int) -> Outcome:
    """Return the promised outcome for a byte of the newest segment of a journal that was not closed."""
    if at < ends[-2]:
        return Outcome.REFUSED
    if at < ends[-1]:
        return Outcome.REPAIRABLE
    is_same_sector = at // SECTOR_BYTES == ends[-1] // SECTOR_BYTES
    return Outcome.REPAIRABLE if is_same_sector and at - ends[-1] >= FRAME_OVERHEAD else Outcome.CUT


def test_every_bit_of_the_newest_segment_has_its_outcome() -> None:
    """A flipped bit in the last frame is refused with the repair command as advice, one before it without."""
    files = crashed_files(5)
    name = segments_of(files)[-1]
    ends = frame_ends(files, name)
    seen: Counter[Outcome] = Counter()
    for bit in range(8 * len(files[name])):
        outcome = outcome_of(files, name, bit)
        assert outcome is expected_in_newest(ends, bit // 8), f"bit {bit} of {name}, frames end at {ends}"
        seen[outcome] += 1
    assert set(seen) == set(Outcome)


def test_every_bit_of_a_sealed_segment_is_refused() -> None:
    """Any flipped bit in an older segment, also in its reserved space, is refused without a repair."""
    files = crashed_files(5)
    name = segments_of(files)[0]
    padded = {**files, name: files[name] + bytes(600)}
    assert open_journal(disk_with(padded)).end_position > 0
    for bit in range(8 * len(padded[name])):
        assert outcome_of(padded, name, bit) is Outcome.REFUSED, f"bit {bit}"


def test_every_bit_of_the_manifest_is_refused() -> None:
    """Any flipped bit in the manifest is refused, and the repair command can rebuild the manifest."""
    files = crashed_files(5)
    for bit in range(8 * len(files[MANIFEST_NAME])):
        assert outcome_of(files, MANIFEST_NAME, bit) is Outcome.REPAIRABLE, f"bit {bit}"


def test_every_bit_of_a_closed_journal_is_refused() -> None:
    """After a clean close there is no reserved space, and every flipped bit is detected."""
    files = closed_files(2)
    for name, data in files.items():
        for bit in range(8 * len(data)):
            assert outcome_of(files, name, bit) is not Outcome.CUT, f"bit {bit} of {name}"


@pytest.mark.parametrize("shift", [*range(416, 470), 500, 511])
def test_last_frame_is_refused_wherever_sectors_divide_it(shift: int) -> None:
    """A flipped bit is never taken for a torn frame, wherever a sector boundary lies in the frame."""
    disk = empty_disk()
    journal = open_journal(disk, ROOMY)
    journal.write(b"p" * shift, 1, 0)
    journal.write(b"\xc1" * 600 + body_of(1), 1, 0)
    files = disk.kill().files()
    name = segments_of(files)[-1]
    start, end = frame_ends(files, name)[-2:]
    assert start == 512 + FRAME_OVERHEAD + shift
    boundaries = {at for at in range(start, end) if at % SECTOR_BYTES in (0, 1, SECTOR_BYTES - 1)}
    for at in sorted({start, start + 1, end - 1, end - 2, *boundaries}):
        for bit in range(8):
            assert outcome_of(files, name, 8 * at + bit) is Outcome.REPAIRABLE, f"byte {at}, bit {bit}"


def test_undamaged_copy_opens() -> None:
    """The journal that these tests damage opens without damage."""
    check_contiguous(list(open_journal(disk_with(crashed_files(5))).replay()))
