"""Damage that opening refuses, and damage that it cuts; a refusal changes nothing."""

import zlib

import pytest

from holdfast.journal.errors import JournalDamagedError, JournalVersionError
from holdfast.journal.frame import FRAME_OVERHEAD, encode, find_header
from holdfast.journal.manifest import MANIFEST_NAME
from holdfast.journal.recovery import repair
from holdfast.journal.segment import HEADER_BYTES, SegmentHeader, read_header
from holdfast.journal.survey import survey
from holdfast.journal.version import FORMAT_VERSION
from tests.unit.journal.workload import (
    ROOMY,
    check_contiguous,
    closed_files,
    crashed_files,
    disk_with,
    empty_disk,
    open_journal,
    segments_of,
    write_frames,
)


def refusal(files: dict[str, bytes]) -> JournalDamagedError:
    """Open the journal, assert that it is refused and unchanged, and return the error."""
    disk = disk_with(files)
    with pytest.raises(JournalDamagedError) as caught:
        open_journal(disk)
    assert disk.files() == files
    return caught.value


def header_of(files: dict[str, bytes], name: str) -> SegmentHeader:
    return read_header(disk_with(files).open(name), name)


def last_frame(files: dict[str, bytes]) -> tuple[str, int, int]:
    """Return the newest segment, and the offsets at which its last frame starts and ends."""
    name = segments_of(files)[-1]
    salt = header_of(files, name).salt
    start, at = 0, HEADER_BYTES
    while (at := find_header(files[name], at, salt)) >= 0:
        start, at = at, at + 1
    found = survey(disk_with(files)).tail
    assert found is not None
    return name, start, found.offset


def replaced(files: dict[str, bytes], name: str, at: int, data: bytes) -> dict[str, bytes]:
    old = files[name]
    return {**files, name: old[:at] + data + old[at + len(data) :]}


@pytest.mark.parametrize("number", [0, 1, -1])
def test_emptied_segment_is_refused(number: int) -> None:
    """An empty segment file is refused, because a segment gets its name only with a durable header."""
    files = crashed_files()
    name = segments_of(files)[number]
    assert refusal({**files, name: b""}).file == name


def test_missing_middle_segment_is_refused() -> None:
    """A missing segment in the middle is detected by the segment before it."""
    files = crashed_files()
    names = segments_of(files)
    del files[names[1]]
    assert refusal(files).file == names[0]


def test_missing_newest_segment_is_refused() -> None:
    """A missing newest segment is detected, because the manifest names it."""
    files = crashed_files()
    name = segments_of(files)[-1]
    del files[name]
    assert refusal(files).file == name


def test_missing_oldest_segment_shows_in_the_first_position() -> None:
    """A lost first segment looks like a deleted one, and the caller needs a snapshot in both cases."""
    files = crashed_files()
    del files[segments_of(files)[0]]
    assert open_journal(disk_with(files)).first_position > 1


@pytest.mark.parametrize("first", [0, 1, 2])
def test_swapped_segments_are_refused(first: int) -> None:
    """Two segments with swapped names are detected by their headers."""
    files = crashed_files()
    names = segments_of(files)
    one, other = names[first], names[first + 1]
    files[one], files[other] = files[other], files[one]
    assert refusal(files).file == one


def test_segment_of_another_journal_is_refused() -> None:
    """A segment with another cluster id is refused."""
    files = crashed_files()
    name = segments_of(files)[-1]
    header = header_of(files, name)
    foreign = SegmentHeader(
        digest_version=1,
        cluster_id=b"another cluster!",
        epoch=header.epoch,
        first_position=header.first_position,
        link=header.link,
        created_ms=0,
    )
    assert "another journal" in refusal({**files, name: foreign.encode()}).problem


def test_epoch_that_goes_back_is_refused() -> None:
    """A later segment with a lower epoch is refused, because a process without the lock wrote it."""
    files = crashed_files()
    header = header_of(files, segments_of(files)[-1])
    disk = disk_with(files)
    end = open_journal(disk).end_position
    stale = SegmentHeader(
        digest_version=1,
        cluster_id=header.cluster_id,
        epoch=header.epoch - 1,
        first_position=end + 1,
        link=0,
        created_ms=0,
    )
    assert "epoch" in refusal({**files, stale.name: stale.encode()}).problem


def test_broken_link_between_segments_is_refused() -> None:
    """A segment whose link is not the checksum of the last frame before it is refused."""
    files = crashed_files()
    name = segments_of(files)[1]
    header = header_of(files, name)
    unlinked = SegmentHeader(
        digest_version=1,
        cluster_id=header.cluster_id,
        epoch=header.epoch,
        first_position=header.first_position,
        link=header.link ^ 1,
        created_ms=header.created_ms,
    )
    assert "links to" in refusal({**files, name: unlinked.encode()}).problem


def test_missing_manifest_is_refused() -> None:
    """Segments without a manifest are refused and not taken for a new journal."""
    files = crashed_files()
    del files[MANIFEST_NAME]
    error = refusal(files)
    assert error.file == MANIFEST_NAME
    assert "holdfast journal repair" in error.message


def test_snapshot_without_a_journal_is_refused() -> None:
    """A directory with a snapshot but without a journal is refused."""
    error = refusal({"snapshot-00000000000000000009.snap": b"x"})
    assert not error.is_repairable


def test_journal_shorter_than_its_mark_is_refused() -> None:
    """After a clean close, a missing frame at the end is detected although the remaining frames are valid."""
    files = closed_files()
    name, start, _ = last_frame(files)
    error = refusal({**files, name: files[name][:start]})
    assert "known to have been durable" in error.problem
    assert not error.is_repairable


def test_another_history_of_equal_length_is_refused() -> None:
    """Segments that were copied from another history do not match the checksum in the manifest."""
    histories = []
    for body in (b"one", b"two"):
        disk = empty_disk()
        journal = open_journal(disk)
        journal.write(body, 1, 0)
        journal.close()
        histories.append(disk.files())
    error = refusal({**histories[0], MANIFEST_NAME: histories[1][MANIFEST_NAME]})
    assert "does not match the manifest" in error.problem


@pytest.mark.parametrize("kind", ["segment", "manifest"])
def test_newer_format_is_refused_by_name(kind: str) -> None:
    """A file of a newer version is not reported as damage, and the message says what to do."""
    files = crashed_files()
    name = segments_of(files)[0] if kind == "segment" else MANIFEST_NAME
    disk = disk_with(files)
    newer = _with_version(files[name], FORMAT_VERSION + 1)
    disk = disk_with({**files, name: newer})
    with pytest.raises(JournalVersionError, match=r"format version 3; this Holdfast reads versions 1 to 2.*run the"):
        open_journal(disk)
    assert disk.files() == {**files, name: newer}


def _with_version(data: bytes, version: int) -> bytes:
    head = data[:8] + version.to_bytes(4, "big")
    return head + zlib.crc32(head).to_bytes(4, "big") + data[16:]


def test_torn_tail_is_cut_and_a_copy_is_kept() -> None:
    """An incomplete last frame is moved to a backup file, and the frames before it stay."""
    files = crashed_files()
    name, start, end = last_frame(files)
    torn = {**files, name: files[name][: end - 1]}
    disk = disk_with(torn)
    journal = open_journal(disk)
    frames = list(journal.replay())
    check_contiguous(frames)
    position = frames[-1].last_position + 1
    after = disk.files()
    assert after[f"torn-{position}-2.bak"] == files[name][start : end - 1]
    assert after[name] == files[name][:start]


def test_sector_of_zeros_in_the_last_frame_is_torn() -> None:
    """A frame over several sectors is cut if any of them did not reach the disk."""
    disk = empty_disk()
    journal = open_journal(disk)
    write_frames(journal, 1)
    start = journal.segments()[-1].bytes
    assert journal.reserve(3_000)
    journal.write(b"long" * 600, 1, 0)
    files = disk.kill().files()
    name = segments_of(files)[-1]
    for sector in range(start // 512, (start + 2_400 + FRAME_OVERHEAD - 1) // 512 + 1):
        first = max(start, sector * 512)
        damaged = replaced(files, name, first, bytes((sector + 1) * 512 - first))
        again = disk_with(damaged)
        assert open_journal(again).end_position == 2
        assert "torn-3-1.bak" in again.files()


@pytest.mark.parametrize("shift", range(400, 464))
def test_missing_sector_of_a_header_is_torn(shift: int) -> None:
    """If a sector boundary divides the header, either part may be missing, and the frame is cut."""
    disk = empty_disk()
    journal = open_journal(disk, ROOMY)
    journal.write(b"p" * shift, 1, 0)
    start = journal.segments()[-1].bytes
    journal.write(b"long" * 300, 1, 0)
    files = disk.kill().files()
    name = segments_of(files)[-1]
    boundary = -(-(start + 1) // 512) * 512
    assert boundary == 1_024
    for first, size in ((start, boundary - start), (boundary, 512)):
        again = disk_with(replaced(files, name, first, bytes(size)))
        assert open_journal(again).end_position == 1
        assert "torn-2-1.bak" in again.files()


def test_damaged_frame_before_a_torn_one_is_refused() -> None:
    """A damaged frame is refused if a valid header follows it, even if the following frame is torn."""
    files = crashed_files()
    name, start, end = last_frame(files)
    files = replaced(files, name, start - 6, b"!")
    error = refusal({**files, name: files[name][: end - 1]})
    assert not error.is_repairable
    assert f"offset {start}" in error.problem


def test_damaged_length_does_not_cut_later_frames() -> None:
    """A header with a wrong checksum is not a torn frame, even if its length exceeds the file."""
    files = crashed_files()
    name, start, _ = last_frame(files)
    error = refusal(replaced(files, name, start + 4, b"\x0f"))
    assert (error.file, error.offset) == (name, start)
    assert error.is_repairable


@pytest.mark.parametrize(("skipped", "link_flip"), [(0, 1), (1, 0)])
def test_valid_frame_that_is_no_successor_is_refused(skipped: int, link_flip: int) -> None:
    """A complete frame with a wrong link or position is refused, because the expected frame is missing."""
    files = crashed_files()
    name, start, _ = last_frame(files)
    salt = header_of(files, name).salt
    before = survey(disk_with({**files, name: files[name][:start]}))
    intruder = encode(
        b"?",
        first_position=before.end_position + 1 + skipped,
        count=1,
        digest=0,
        link=before.end_checksum ^ link_flip,
        salt=salt,
        offset=start,
    )
    error = refusal({**files, name: files[name][:start] + intruder.data})
    assert "does not follow the one before it" in error.problem
    assert not error.is_repairable


def test_bytes_behind_a_damaged_last_frame_are_not_of_a_torn_one() -> None:
    """A frame with a sector of zeros is not torn if there are non-zero bytes after its end."""
    disk = empty_disk()
    journal = open_journal(disk)
    journal.write(b"long" * 600, 1, 0)
    files = disk.kill().files()
    name, _, end = last_frame(files)
    files = replaced(files, name, 1_024, bytes(512))
    assert open_journal(disk_with(files)).end_position == 0
    assert refusal(replaced(files, name, end + 3, b"?")).is_repairable


def test_repair_cuts_a_damaged_last_frame() -> None:
    """The repair command cuts a damaged last frame and keeps a copy, and the journal opens again."""
    files = closed_files()
    name, start, end = last_frame(files)
    disk = disk_with(replaced(files, name, start + 60, b"\xff\xff"))
    report = repair(disk)
    assert report.bytes_cut == end - start
    assert report.positions_lost > 0
    assert report.copy_name in disk.files()
    journal = open_journal(disk)
    assert journal.end_position == report.end_position
    check_contiguous(list(journal.replay()))


def test_repair_leaves_a_sound_journal_alone() -> None:
    """A repair of an undamaged journal changes nothing."""
    files = closed_files()
    disk = disk_with(files)
    assert not repair(disk).is_changed
    assert disk.files() == files


def test_repair_refuses_damage_that_a_valid_frame_follows() -> None:
    """The repair command refuses to cut a damaged frame that is followed by a valid frame."""
    files = closed_files()
    name = segments_of(files)[0]
    damaged = replaced(files, name, HEADER_BYTES + 50, b"\xff\xff")
    disk = disk_with(damaged)
    with pytest.raises(JournalDamagedError):
        repair(disk)
    assert disk.files() == damaged


@pytest.mark.parametrize("manifest", [None, b"junk"])
def test_repair_rebuilds_the_manifest(manifest: bytes | None) -> None:
    """The repair command rebuilds a missing manifest from the segments."""
    files = closed_files()
    del files[MANIFEST_NAME]
    disk = disk_with(files if manifest is None else {**files, MANIFEST_NAME: manifest})
    assert repair(disk).is_manifest_rebuilt
    check_contiguous(list(open_journal(disk).replay()))
