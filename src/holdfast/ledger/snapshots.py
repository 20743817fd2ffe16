"""Snapshots of a ledger by replay, made in a separate process, so that the coordinator never pauses for them.

The maker process replays sealed frames onto the previous snapshot and writes the next one. It holds only the jobs
that the frames can change; all others are copied from snapshot to snapshot (see `core/image_part.py`). The digest in
each frame is checked during the replay. The finished snapshot is read back, and its digest is computed from all its
jobs; a mismatch is an error, and the previous snapshots stay.
"""

import gc
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import msgspec

from holdfast.core.digest import DIGEST_VERSION
from holdfast.core.image_part import ImageFacts, ImagePart, NeededJobs, examine
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.errors import HoldfastError
from holdfast.journal.archive import JournalArchive
from holdfast.journal.errors import JournalDamagedError, JournalError, SnapshotDamagedError
from holdfast.journal.port import Frame
from holdfast.journal.snapshot import SnapshotHeader
from holdfast.ledger.recovery import apply_frame, decoded

#: The memory that a maker may always use for jobs; with less it would be slow.
PART_BYTES_MIN = 32 << 20


class SnapshotMismatchError(JournalError):
    """The snapshot that was read back differs from the state that was written."""


def take_snapshot(archive: JournalArchive, config: LedgerConfig, part_bytes: int = PART_BYTES_MIN) -> int:
    """Makes a snapshot of all sealed frames; returns its position, or 0 if there is nothing new.

    It advances in steps of frames whose jobs take about `part_bytes` of memory. Each step writes a whole snapshot that
    replaces the one of the previous step. The frames are pinned, so that they are not deleted meanwhile. A failure
    leaves the snapshot of the last step and changes nothing else.
    """
    base = newest = _newest_good(archive)
    with archive.pin(base.position + 1 if base else 1):
        position, link = (base.position, base.link) if base else (0, None)
        frames = _FrameQueue(archive.sealed_frames(position, link=link))
        while header := _advance(archive, newest, frames, config, part_bytes):
            if newest is not None and newest is not base:
                archive.remove_snapshot(newest.position)
            newest = header
            gc.collect()  # a ledger has reference cycles, and the next one needs its memory
    return newest.position if newest is not None and newest is not base else 0


class _FrameQueue:
    """Frames in order, with the next one available in `next` before it is taken."""

    def __init__(self, frames: Iterator[Frame]) -> None:
        self._frames = frames
        self.next = next(frames, None)

    def take(self) -> Frame:
        """Removes and returns the next frame, which must exist."""
        frame, self.next = self.next, next(self._frames, None)
        assert frame is not None
        return frame


class _Step(msgspec.Struct, frozen=True):
    """Frames of one digest version that are applied together, and the data they need of the previous snapshot."""

    frames: list[Frame]
    needs: NeededJobs

    @classmethod
    def of(cls, frames: _FrameQueue, part_bytes: int) -> "_Step | None":
        """Takes as many of the next frames as fit into the memory, at least one; None at the end."""
        taken, needs = list[Frame](), NeededJobs()
        while frames.next is not None and (not taken or frames.next.digest_version == taken[0].digest_version):
            frame = frames.take()
            taken.append(frame)
            needs.bytes += len(frame.body)
            for event in decoded(frame):
                needs.add(event)
            if needs.bytes >= part_bytes:
                break
        return cls(taken, needs) if taken else None


def failure_text(error: HoldfastError) -> str:
    """Returns the message about a failure for the operator of a running server: the consequence, then the cause.

    A snapshot is made from the segments that the next start replays, so the same damage would refuse that start.
    """
    if isinstance(error, JournalDamagedError):
        return (
            f"do not restart the server, its next start would be refused: {error.file!r} is damaged at offset"
            f" {error.offset}, position {error.position}"
        )
    return error.message


def _newest_good(archive: JournalArchive) -> SnapshotHeader | None:
    """Returns the header of the newest undamaged snapshot, if any."""
    for position in reversed(archive.snapshots()):
        with suppress(SnapshotDamagedError, msgspec.MsgspecError):
            header = archive.snapshot_header(position)
            if examine(archive.snapshot_chunks(position), header.digest_version) == _facts_of(header):
                return header
    return None


def _advance(
    archive: JournalArchive, before: SnapshotHeader | None, frames: _FrameQueue, config: LedgerConfig, part_bytes: int
) -> SnapshotHeader | None:
    """Writes the snapshot after the next step, and reads it back; None if there are no more frames."""
    step = _Step.of(frames, part_bytes)
    if step is None:
        return None
    if before is None:
        part = ImagePart(Ledger(config))
    else:
        source, version = partial(archive.snapshot_chunks, before.position), step.frames[0].digest_version
        facts = _facts_of(before) if before.digest_version == version else examine(source(), version)
        part = ImagePart.load(source, step.needs, facts, config)
    ledger = part.ledger
    for frame in step.frames:
        apply_frame(ledger, frame)
    part.rehash(DIGEST_VERSION)
    header = SnapshotHeader(
        digest_version=DIGEST_VERSION,
        cluster_id=archive.cluster_id(),
        position=ledger.position,
        link=step.frames[-1].checksum,
        log_time_ms=ledger.state.last_ms,
        digest=ledger.digest,
    )
    archive.write_snapshot(header, part.dump())
    if examine(archive.snapshot_chunks(header.position), DIGEST_VERSION) != _facts_of(header):
        archive.remove_snapshot(header.position, is_durable=True)
        raise SnapshotMismatchError(f"the snapshot at position {header.position} did not read back as it was written")
    return header


def _facts_of(header: SnapshotHeader) -> ImageFacts:
    return ImageFacts(header.position, header.digest, header.digest_version)
