"""The outcome of a write is known before it counts."""

from collections.abc import Sequence

import pytest

from holdfast.journal.errors import LeadershipLostError
from holdfast.journal.port import SegmentInfo
from holdfast.topologies.cluster.durable_writer import DurableWriter, key_of
from holdfast.topologies.cluster.frame_checksum import seal
from holdfast.topologies.cluster.lease_deadline import LeaseDeadline
from holdfast.topologies.cluster.ports import Append, DatabaseLostError, FrameKey, StoredFrame
from tests.unit.topologies.cluster.cluster_rig import ClusterRig

FRAME = seal(body=b"body", first_position=1, count=1, epoch=5, digest=7, digest_version=2, link=0)
OURS, OTHERS = key_of(FRAME), FrameKey(6, 1)
LOST = DatabaseLostError("lost")
WRITTEN, UNCONFIRMED, FENCED, TAKEN = Append.WRITTEN, Append.UNCONFIRMED, Append.FENCED, Append.TAKEN
Answer = Append | FrameKey | DatabaseLostError | None


class ScriptedWriter:
    """A database that gives these answers, each to the call that is expected then."""

    def __init__(self, *script: tuple[str, Answer]) -> None:
        self._script = list(script)

    @property
    def is_over(self) -> bool:
        return not self._script

    def _next(self, call: str) -> Answer:
        expected, answer = self._script.pop(0)
        assert call == expected
        if isinstance(answer, DatabaseLostError):
            raise answer
        return answer

    def append(self, frame: StoredFrame, inbox: Sequence[int] = ()) -> Append:
        assert (frame, inbox) == (FRAME, [3])
        answer = self._next("append")
        assert isinstance(answer, Append)
        return answer

    def find(self, first_position: int) -> FrameKey | None:
        assert first_position == FRAME.first_position
        answer = self._next("find")
        assert answer is None or isinstance(answer, FrameKey)
        return answer

    def confirm(self, epoch: int) -> Append:
        assert epoch == FRAME.epoch
        answer = self._next("confirm")
        assert isinstance(answer, Append)
        return answer

    def open_segment(self, first_position: int, epoch: int, created_ms: int) -> Append:
        assert (first_position, epoch, created_ms) == (1, 5, 0)
        answer = self._next("open")
        assert isinstance(answer, Append)
        return answer

    def segments(self) -> list[SegmentInfo]:
        return []

    def remove_segments(self, names: Sequence[str], epoch: int) -> Append:
        raise AssertionError((names, epoch))

    def close(self) -> None:
        pass


def writes(writer: ScriptedWriter, *, lease_ms: int = 100_000) -> None:
    """Appends the frame; time passes only while the writer waits."""
    rig = ClusterRig()

    def wait(for_ms: int) -> None:
        rig.time.now_us += for_ms * 1_000

    DurableWriter(writer, LeaseDeadline(rig.clock, lease_ms), wait).append(FRAME, [3])


@pytest.mark.parametrize(
    "script",
    [
        [("append", WRITTEN)],
        [("append", UNCONFIRMED), ("confirm", WRITTEN)],
        [("append", UNCONFIRMED), ("confirm", UNCONFIRMED), ("confirm", WRITTEN)],
        [("append", LOST), ("find", OURS), ("confirm", WRITTEN)],
        [("append", LOST), ("find", None), ("append", WRITTEN)],
        [
            ("append", LOST),
            ("find", LOST),
            ("find", LOST),
            ("find", None),
            ("append", UNCONFIRMED),
            ("confirm", WRITTEN),
        ],
        [("append", LOST), ("find", None), ("append", TAKEN), ("find", OURS), ("confirm", WRITTEN)],
        [("append", LOST), ("find", None), ("append", LOST), ("find", OURS), ("confirm", WRITTEN)],
        [("append", UNCONFIRMED), ("confirm", LOST), ("find", None), ("append", WRITTEN)],
        [("append", LOST), ("find", OURS), ("confirm", LOST), ("find", OURS), ("confirm", WRITTEN)],
    ],
)
def test_frame_counts_once_it_is_written_and_confirmed(script: list[tuple[str, Answer]]) -> None:
    """An unknown outcome is read back; a frame that may not be replicated is confirmed on the same connection."""
    writer = ScriptedWriter(*script)
    writes(writer)
    assert writer.is_over


@pytest.mark.parametrize(
    "script",
    [
        [("append", FENCED)],
        [("append", TAKEN), ("find", OTHERS)],
        [("append", LOST), ("find", OTHERS)],
        [("append", LOST), ("find", None), ("append", FENCED)],
        [("append", LOST), ("find", OURS), ("confirm", FENCED)],
        [("append", UNCONFIRMED), ("confirm", FENCED)],
    ],
)
def test_another_leader_is_final(script: list[tuple[str, Answer]]) -> None:
    """Another epoch, or another frame at the position, ends the leadership."""
    writer = ScriptedWriter(*script)
    with pytest.raises(LeadershipLostError):
        writes(writer)
    assert writer.is_over


@pytest.mark.parametrize("answers", [("find", LOST), ("confirm", UNCONFIRMED)])
def test_unknown_outcome_ends_with_the_lease(answers: tuple[str, Answer]) -> None:
    """A leader that cannot learn the outcome within its lease steps down, and never guesses."""
    first = ("append", LOST if answers[0] == "find" else UNCONFIRMED)
    writer = ScriptedWriter(first, *[answers] * 100)
    with pytest.raises(LeadershipLostError, match="unknown"):
        writes(writer, lease_ms=200)
    assert not writer.is_over


def test_lost_answer_to_a_new_segment_is_asked_for_again() -> None:
    """Beginning a segment is repeated until it is confirmed."""
    writer = ScriptedWriter(("open", LOST), ("open", UNCONFIRMED), ("confirm", WRITTEN))
    rig = ClusterRig()
    DurableWriter(writer, rig.lease(), lambda _: None).open_segment(1, 5, 0)
    assert writer.is_over
