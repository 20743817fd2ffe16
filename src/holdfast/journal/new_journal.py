"""A new journal that begins with a restored state.

Invariant: the directory is marked from before the first write until after the last, so that an interrupted restore is
never mistaken for a journal or for an empty directory.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.errors import FailedPreconditionError
from holdfast.journal.directory_marks import RESTORING_NAME
from holdfast.journal.disk import Disk
from holdfast.journal.manifest import Manifest, write_manifest
from holdfast.journal.segment import HEADER_BYTES, SegmentHeader, create_segment
from holdfast.journal.snapshot import SnapshotHeader, write_snapshot

#: Positions, and tokens, reserved for each millisecond; and the minimum duration of an epoch in milliseconds.
PER_MS = 1_024
_EPOCH_MS = 1_000
#: Keeps positions below 2**53, so that every JSON reader represents them exactly; reached in the year 2248.
_NOW_MS_MAX = (1 << 53) // PER_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The start of a restored journal: past every position, token and epoch that a lost journal could have reached.

    A journal that began empty has used fewer than 1024 positions and tokens per millisecond since 1970, and fewer
    epochs than seconds since then. The same holds for a journal that began at an origin. So everything that was lost
    before now is below this origin; and of two restores of one backup, the later begins above all that the earlier did.
    """

    cluster_id: bytes
    #: The first position and the first token are greater than this.
    floor: int
    epoch: int
    now_ms: int

    @classmethod
    def at(cls, now_ms: int, *, cluster_id: bytes, position: int, token: int, epoch: int) -> "Origin":
        """Return the origin for this time, but always past the end of the backup."""
        if not 0 < now_ms < _NOW_MS_MAX:
            message = f"the clock must be between 1970 and 2248, got {now_ms} ms since 1970; set the clock first"
            raise FailedPreconditionError(message, reason="CLOCK_WRONG")
        floor = max(now_ms * PER_MS, position + 1, token + 1)
        return cls(cluster_id=cluster_id, floor=floor, epoch=max(now_ms // _EPOCH_MS, epoch + 1), now_ms=now_ms)


#: The link of a segment without a frame before it.
_NOTHING = 0


def begin(
    disk: Disk, origin: Origin, chunks: Iterable[bytes], *, digest_version: int, digest: int, log_time_ms: int
) -> None:
    """Create a journal in an empty, marked directory; its state at position `origin.floor` is that of the chunks."""
    snapshot = SnapshotHeader(
        digest_version=digest_version,
        cluster_id=origin.cluster_id,
        position=origin.floor,
        link=_NOTHING,
        log_time_ms=log_time_ms,
        digest=digest,
    )
    assert RESTORING_NAME in disk.names(), "the caller marks the directory first"
    write_snapshot(disk, snapshot, chunks)
    segment = SegmentHeader(
        digest_version=digest_version,
        cluster_id=origin.cluster_id,
        epoch=origin.epoch,
        first_position=origin.floor + 1,
        link=_NOTHING,
        created_ms=origin.now_ms,
    )
    create_segment(disk, segment, HEADER_BYTES).close()
    manifest = Manifest(
        cluster_id=origin.cluster_id,
        newest_first_position=segment.first_position,
        epoch=segment.epoch,
        mark_position=origin.floor,
        mark_checksum=_NOTHING,
    )
    write_manifest(disk, manifest)
