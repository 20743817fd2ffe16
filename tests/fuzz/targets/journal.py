"""The directory of a damaged journal: opening it returns the durable frames, or refuses and changes nothing.

The bytes are a list of damages to one of a few directories whose frames are known. An intact frame must never be lost.
A damaged frame may be cut only at the end of a journal that was not closed, and only if a copy is kept.
"""

import random
import re
from functools import cache
from typing import NamedTuple

from holdfast.journal import FRAME_OVERHEAD, FileJournal, JournalConfig, JournalDamagedError, JournalVersionError
from holdfast_lab.simulation.disk import SimDisk
from tests.fuzz.source import Source
from tests.golden.journal.generate import golden_files

EXAMPLES = 500

_CLUSTER_ID = bytes(range(16))
_SECTOR_BYTES = 512
_DAMAGES_MAX = 4
_SEGMENT = re.compile(r"\d{20}-\d{10}\.seg")


class _Lying(NamedTuple):
    """A frame as it was written: its file, its offset, and its content."""

    file: str
    offset: int
    data: bytes
    body: bytes
    first_position: int


class _Base(NamedTuple):
    files: dict[str, bytes]
    frames: tuple[_Lying, ...]
    is_closed: bool


def _config(segment_bytes: int) -> JournalConfig:
    return JournalConfig(segment_bytes=segment_bytes, extent_bytes=1_024)


def _open(disk: SimDisk, segment_bytes: int = 1_200) -> FileJournal:
    return FileJournal.open(disk, _config(segment_bytes), now_ms=1_700_000_000_000, new_cluster_id=_CLUSTER_ID)


def _written(bodies: list[bytes], segment_bytes: int, *, is_closed: bool) -> _Base:
    disk = SimDisk(random.Random(0))
    journal = _open(disk, segment_bytes)
    for number, body in enumerate(bodies, 1):
        journal.write(body, 1 + number % 3, number)
    if is_closed:
        journal.close()
    return _base(disk.kill().files(), is_closed=is_closed)


def _base(files: dict[str, bytes], *, is_closed: bool) -> _Base:
    """The files with the place of each frame, computed from the sizes of the frames before it in its segment."""
    journal = _open(SimDisk(random.Random(0), files))
    frames = list(journal.replay())
    segments = [info for info in journal.segments() if info.name in files]
    found, offset, segment = [], 0, ""
    for frame in frames:
        holder = next(one for one in segments if one.first_position <= frame.first_position <= one.last_position)
        offset = _SECTOR_BYTES if holder.name != segment else offset
        segment = holder.name
        data = files[segment][offset : offset + (FRAME_OVERHEAD + len(frame.body))]
        found.append(_Lying(segment, offset, data, frame.body, frame.first_position))
        offset += FRAME_OVERHEAD + len(frame.body)
    return _Base(files, tuple(found), is_closed)


@cache
def _bases() -> tuple[_Base, ...]:
    rng = random.Random(0)
    mixed = [rng.randbytes(rng.choice((1, 20, 200, 1_500))) for _ in range(9)]
    return (
        _base(golden_files(), is_closed=True),
        _written(mixed, 1_200, is_closed=False),
        _written(mixed, 1_200, is_closed=True),
        _written(mixed, 1 << 20, is_closed=False),
        _written(mixed, 1 << 20, is_closed=True),
        _written([bytes(2_000), b"x", bytes(700)], 1 << 20, is_closed=False),
        _written([], 1 << 20, is_closed=False),
    )


def seeds() -> list[bytes]:
    """One damage of each kind to each directory."""
    rng = random.Random(0)
    return [bytes([base, 0, kind]) + rng.randbytes(12) for base in range(len(_bases())) for kind in range(9)]


def fuzz(data: bytes) -> None:
    """Opens a damaged directory."""
    source = Source(data)
    base = source.pick(_bases())
    files = {name: bytearray(content) for name, content in base.files.items()}
    for _ in range(1 + source.below(_DAMAGES_MAX)):
        _damage(source, files)
    if not any(_SEGMENT.fullmatch(name) for name in files):
        return  # without a segment the journal cannot be told from a new one
    before = {name: bytes(content) for name, content in files.items()}
    disk = SimDisk(random.Random(0), before)
    try:
        journal = _open(disk)
    except (JournalDamagedError, JournalVersionError) as error:
        assert disk.files() == before, "a refused directory was changed"
        _check_refusal(error, base, before)
        return
    frames = [(frame.first_position, frame.body) for frame in journal.replay(journal.first_position - 1)]
    names = disk.files().keys() - before.keys()
    journal.close()
    _check_kept(base, before, frames, has_copy=any(name.startswith("torn-") for name in names))


def _damage(source: Source, files: dict[str, bytearray]) -> None:
    if not files:
        return
    name = source.pick(sorted(files))
    content = files[name]
    kind, at, size = source.below(9), source.below(len(content) + 1), 1 + source.below(1_024)
    match kind:
        case 0 if at < len(content):
            content[at] ^= 1 << source.below(8)
        case 1:
            given = source.take(1 + size % 16)
            content[at : at + len(given)] = given
        case 2:
            del content[at:]
        case 3:
            start = at // _SECTOR_BYTES * _SECTOR_BYTES
            end = min(len(content), start + _SECTOR_BYTES * (1 + size % 4))
            content[start:end] = bytes(end - start)
        case 4:
            content += bytes(size) if size % 2 else source.take(size)
        case 5:
            del files[name]
        case 6:
            del content[at : at + size]
        case 7:
            other = bytes(files[source.pick(sorted(files))])
            content[at : at + size] = other[at : at + size]
        case _:
            other_name = source.pick(sorted(files))
            files[name], files[other_name] = files[other_name], content


def _check_refusal(error: JournalDamagedError | JournalVersionError, base: _Base, files: dict[str, bytes]) -> None:
    """Checks that the directory was changed, and that the message names the place of the damage."""
    assert files != base.files, "an undamaged directory was refused"
    if isinstance(error, JournalDamagedError):
        assert error.file in error.message
        assert f"offset {error.offset}" in error.message
        assert _SEGMENT.fullmatch(error.file) or error.file == "MANIFEST", error.file
    else:
        assert any(name in error.message for name in base.files), error.message


def _check_kept(base: _Base, files: dict[str, bytes], frames: list[tuple[int, bytes]], *, has_copy: bool) -> None:
    """Checks that the frames are those written since the first segment, and that only allowed ones are missing."""
    first = min(name for name in files if _SEGMENT.fullmatch(name))
    written = [frame for frame in base.frames if frame.file >= first]
    given = [(frame.first_position, frame.body) for frame in written[: len(frames)]]
    assert frames == given, "the replayed frames are no prefix of the written ones"
    lost = written[len(frames) :]
    if not lost:
        return
    assert not base.is_closed, f"{len(lost)} frames of a closed journal were dropped"
    newest = max(name for name in base.files if _SEGMENT.fullmatch(name))
    for frame in lost:
        assert frame.file == newest, "a frame of a sealed segment was dropped"
        lying = files.get(frame.file, b"")[frame.offset : frame.offset + len(frame.data)]
        assert lying != frame.data, f"the intact frame at offset {frame.offset} was dropped"
    is_zeros = not files.get(newest, b"")[lost[0].offset :].strip(b"\0")
    assert has_copy or is_zeros, "the cut bytes were not copied"
