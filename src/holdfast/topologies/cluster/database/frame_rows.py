"""Conversion of frames to rows and back: PostgreSQL has no unsigned numbers."""

from collections.abc import Sequence
from typing import Any

from holdfast.topologies.cluster.ports import StoredFrame

_HALF, _WHOLE = 1 << 63, 1 << 64


def signed(number: int) -> int:
    """Returns the signed number with the same 64 bits."""
    return number - _WHOLE if number >= _HALF else number


def unsigned(number: int) -> int:
    """Returns the unsigned number with the same 64 bits."""
    return number % _WHOLE


def columns_of(frame: StoredFrame) -> dict[str, Any]:
    """Returns the columns of a frame's row."""
    return {
        "first_position": frame.first_position,
        "count": frame.count,
        "epoch": frame.epoch,
        "digest": signed(frame.digest),
        "digest_version": frame.digest_version,
        "link": frame.link,
        "checksum": frame.checksum,
        "body": frame.body,
    }


def frame_of(row: Sequence[Any]) -> StoredFrame:
    """Returns the frame of a row."""
    first_position, count, epoch, digest, *rest = row
    return StoredFrame(first_position, count, epoch, unsigned(digest), *rest)
