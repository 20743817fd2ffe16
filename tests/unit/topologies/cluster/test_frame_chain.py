"""Frames are sealed, and follow each other without a gap."""

import pytest
from msgspec import structs

from holdfast.journal.errors import JournalDamagedError
from holdfast.topologies.cluster.durable_writer import key_of
from holdfast.topologies.cluster.frame_chain import FrameChain
from holdfast.topologies.cluster.frame_checksum import seal, verify
from holdfast.topologies.cluster.ports import StoredFrame


def sealed(first: int, count: int = 1, *, link: int = 0, epoch: int = 1, body: bytes = b"body") -> StoredFrame:
    return seal(body=body, first_position=first, count=count, epoch=epoch, digest=7, digest_version=2, link=link)


def test_sealed_frame_is_verified() -> None:
    """A frame that was sealed matches its checksum."""
    verify(sealed(1), shard=0, after=0, link=0)


@pytest.mark.parametrize(
    "change",
    [
        {"first_position": 2},
        {"count": 2},
        {"epoch": 2},
        {"digest": 8},
        {"digest_version": 3},
        {"link": 1},
        {"body": b"bodx"},
    ],
)
def test_every_changed_field_is_found(change: dict[str, object]) -> None:
    """The checksum covers every other field."""
    with pytest.raises(JournalDamagedError, match="checksum"):
        verify(structs.replace(sealed(1), **change), shard=0, after=0, link=0)


def test_frames_of_two_leaders_have_other_keys() -> None:
    """The same events under another epoch are another frame."""
    assert key_of(sealed(1)) != key_of(sealed(1, epoch=2))


def test_chain_accepts_successors_only() -> None:
    """The chain advances over a frame that links to the one before it."""
    first = sealed(1, 3)
    chain = FrameChain(0)
    assert chain.check(first).last_position == chain.position == 3
    assert chain.check(sealed(4, link=first.checksum)).checksum == chain.link


@pytest.mark.parametrize(
    ("follower", "problem"),
    [
        (lambda first: sealed(5, link=first.checksum), "no frame with this position"),
        (lambda first: sealed(3, 2, link=first.checksum, epoch=2), "repeats positions up to 3"),
        (lambda first: sealed(4, link=first.checksum + 1), "does not follow"),
        (lambda first: sealed(4, link=first.checksum, epoch=1), "follows epoch 2"),
        (lambda first: structs.replace(sealed(4, link=first.checksum, epoch=2), body=b"x"), "checksum"),
    ],
)
def test_chain_refuses_other_frames(follower: object, problem: str) -> None:
    """A gap, a repetition, another link, an older epoch and damage are errors; the chain does not advance."""
    assert callable(follower)
    first = sealed(1, 3, epoch=2)
    chain = FrameChain(0)
    chain.check(first)
    with pytest.raises(JournalDamagedError, match=problem):
        chain.check(follower(first))
    assert chain.position == 3


def test_chain_without_a_link_may_begin_inside_a_frame() -> None:
    """A reader of events may begin at any position; links are compared from the second frame on."""
    chain = FrameChain(0, 2, None)
    first = sealed(1, 4, link=99)
    assert chain.check(first).last_position == 4
    with pytest.raises(JournalDamagedError, match="does not follow"):
        chain.check(sealed(5, link=first.checksum + 1))
