"""The checksum of frames: it covers every field, and links each frame to the one before."""

import msgspec
import pytest

from holdfast.journal.errors import JournalDamagedError
from holdfast.topologies.cluster.frame_checksum import seal, verify
from holdfast.topologies.cluster.ports import StoredFrame

FIRST = seal(first_position=1, count=3, epoch=1, digest=(1 << 64) - 1, digest_version=2, link=0, body=b"first")
SECOND = seal(first_position=4, count=1, epoch=2, digest=7, digest_version=2, link=FIRST.checksum, body=b"")


def test_linked_frames_are_verified() -> None:
    """Frames pass in order, with a known or an unknown link; a frame that contains the position passes too."""
    verify(FIRST, shard=0, after=0, link=0)
    verify(SECOND, shard=0, after=3, link=FIRST.checksum)
    verify(SECOND, shard=0, after=3, link=None)
    verify(FIRST, shard=0, after=2, link=None)


@pytest.mark.parametrize("field", StoredFrame.__struct_fields__)
def test_every_field_is_covered(field: str) -> None:
    """A change of any field is damage at the position of the frame."""
    value = getattr(SECOND, field)
    changed = msgspec.structs.replace(SECOND, **{field: b"x" if isinstance(value, bytes) else value + 1})
    with pytest.raises(JournalDamagedError, match=r"shard 5.*does not match its checksum.*database from a backup"):
        verify(changed, shard=5, after=3, link=None)


def test_impossible_field_is_damage() -> None:
    """A field that no writer can have written is damage too."""
    with pytest.raises(JournalDamagedError, match="does not match"):
        verify(msgspec.structs.replace(SECOND, count=-1), shard=0, after=3, link=None)


def test_gap_is_damage() -> None:
    """A frame behind a gap names the missing position."""
    with pytest.raises(JournalDamagedError, match="there is no frame with this position") as damaged:
        verify(SECOND, shard=0, after=1, link=None)
    assert damaged.value.position == 2


def test_other_link_is_damage() -> None:
    """A frame of another history is damage."""
    with pytest.raises(JournalDamagedError, match="does not follow the frame before it"):
        verify(SECOND, shard=0, after=3, link=FIRST.checksum + 1)
