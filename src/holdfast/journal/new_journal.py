"""A new journal that begins with a state instead of with nothing.

Invariant: the directory is marked from before the first write until after the last, so that an interrupted beginning
is never mistaken for a journal, nor for an empty directory.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.errors import FailedPreconditionError
from holdfast.journal.directory_marks import RESTORING_NAME
from holdfast.journal.disk import Disk
from holdfast.journal.manifest import Manifest, write_manifest
from holdfast.journal.segment import HEADER_BYTES, SegmentHeader, create_segment
from holdfast.journal.snapshot import SnapshotHeader, write_snapshot

#: How many positions, and tokens, one millisecond has room for; and how many milliseconds an epoch takes at least.
PER_MS = 1_024
_EPOCH_MS = 1_000
#: So that positions stay exact in every reader of JSON, until the year 2248.
_NOW_MS_MAX = (1 << 53) // PER_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a restored journal begins: past everything that the lost ones could have reached by now.

    A journal that began with nothing has had fewer than 1024 positions and tokens for each millisecond since 1970, and
    fewer openings than seconds; one that began here has so again. So whatever was lost, at whatever time before now,
    is below; and of two restores of one backup, the later begins above all that the earlier has done.
    """

    cluster_id: bytes
    #: The first position and the first token are past this.
    floor: int
    epoch: int
    now_ms: int

    @classmethod
    def at(cls, now_ms: int, *, cluster_id: bytes, position: int, token: int, epoch: int) -> "Origin":
        """An origin at this time, and in any case past what the backup itself has."""
        if not 0 < now_ms < _NOW_MS_MAX:
            message = f"expected the clock to be between 1970 and 2248, got {now_ms} ms since 1970; set it right first"
            raise FailedPreconditionError(message, reason="CLOCK_WRONG")
        floor = max(now_ms * PER_MS, position + 1, token + 1)
        return cls(cluster_id=cluster_id, floor=floor, epoch=max(now_ms // _EPOCH_MS, epoch + 1), now_ms=now_ms)


#: The link of what has no frame before it.
_NOTHING = 0


def begin(
    disk: Disk, origin: Origin, chunks: Iterable[bytes], *, digest_version: int, digest: int, log_time_ms: int
) -> None:
    """Makes an empty directory a journal whose state, at the position `origin.floor`, is that of the chunks."""
    snapshot = SnapshotHeader(
        digest_version=digest_version,
        cluster_id=origin.cluster_id,
        position=origin.floor,
        link=_NOTHING,
        log_time_ms=log_time_ms,
        digest=digest,
    )
    assert RESTORING_NAME in disk.names(), "whoever begins marks the directory"
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
