"""The journal of a shard in a database."""

from collections.abc import Iterator

import pytest

from holdfast.core.ledger import Ledger
from holdfast.journal.errors import JournalClosedError, JournalDamagedError, LeadershipLostError, PositionRemovedError
from holdfast.topologies.cluster.journal import ClusterJournal
from holdfast_lab.simulation.database_connections import LinkFaults
from holdfast_lab.simulation.database_rows import InboxInserted
from holdfast_lab.simulation.process_thread import ProcessThread
from tests.unit.ledger.test_archives import fill
from tests.unit.topologies.cluster.cluster_rig import LEASE_MS, ClusterRig, new_ledger


@pytest.fixture
def rig() -> Iterator[ClusterRig]:
    """A database with one shard."""
    rig = ClusterRig()
    yield rig
    rig.close()


def filled(rig: ClusterRig, jobs: int, segment_bytes: int = 1 << 20) -> tuple[ClusterJournal, ProcessThread, Ledger]:
    journal, thread = rig.journal(rig.take(), segment_bytes=segment_bytes)
    ledger = new_ledger()
    rig.do(lambda: fill(journal, ledger, 0, jobs), thread)
    return journal, thread, ledger


def test_frames_are_read_as_they_were_written(rig: ClusterRig) -> None:
    """A replay yields every frame, verified, up to the durable end."""
    journal, thread, ledger = filled(rig, 10)
    frames = rig.do(lambda: list(journal.replay()), thread)
    assert [frame.first_position for frame in frames] == list(range(1, 21))
    assert (frames[-1].digest, frames[-1].checksum) == (ledger.digest, journal.end_checksum)
    assert journal.end_position == 20


def test_replay_continues_from_a_link(rig: ClusterRig) -> None:
    """The checksum of the frame before is compared with what the reader knows."""
    journal, thread, _ = filled(rig, 5)
    frames = rig.do(lambda: list(journal.replay()), thread)
    rest = rig.do(lambda: list(journal.replay(4, link=frames[3].checksum)), thread)
    assert rest == frames[4:]
    with pytest.raises(JournalDamagedError, match="does not follow"):
        rig.do(lambda: list(journal.replay(4, link=1)), thread)


def test_new_leader_continues_where_the_old_one_ended(rig: ClusterRig) -> None:
    """The frames of two epochs are one chain, and the old leader cannot write any more."""
    old, old_thread, ledger = filled(rig, 3)
    rig.pass_ms(2 * LEASE_MS)
    new, thread = rig.journal(rig.take(name="b"), end=(old.end_position, old.end_checksum))
    rig.do(lambda: fill(new, ledger, 3, 2), thread)
    assert len(rig.do(lambda: list(new.replay()), thread)) == 10
    with pytest.raises(LeadershipLostError):
        rig.do(lambda: old.write(b"late", 1, 0), old_thread)
    with pytest.raises(LeadershipLostError):
        old.reserve(1)


def test_takeover_waits_for_an_append_in_flight(rig: ClusterRig) -> None:
    """A frame that the database is writing is there before the epoch changes."""
    journal, thread, _ = filled(rig, 1)
    rig.pass_ms(2 * LEASE_MS)
    rig.database.standby_stalled_until_us = rig.time.now_us + 30_000
    results: list[int | BaseException] = []
    thread.run(lambda: journal.write(b"in flight", 1, 0), results.append, is_lone=False)
    rig.until(lambda: bool(rig.database.inserting))
    assert rig.take(name="b") == 2
    assert rig.database.rows.end_position(0) == 3


def test_lost_answers_lose_and_repeat_nothing(rig: ClusterRig) -> None:
    """With every fault of a connection, each frame is written exactly once."""
    faults = LinkFaults(lost_request=20, lost_answer=20, late_request=20, cut=20)
    journal, thread = rig.journal(rig.take(), faults=faults)
    ledger = new_ledger()
    rig.do(lambda: fill(journal, ledger, 0, 30), thread)
    frames = rig.do(lambda: list(journal.replay()), thread)
    assert [frame.first_position for frame in frames] == list(range(1, 61))
    assert rig.database.counts.keys() >= {"lost request", "lost answer", "late request", "cut"}


def test_leader_without_database_steps_down_by_its_lease(rig: ClusterRig) -> None:
    """A write whose outcome stays unknown fails when the lease has ended, and is final."""
    faults = LinkFaults()
    journal, thread = rig.journal(rig.take(), lease=rig.lease(400), faults=faults)
    faults.lost_request = 100
    with pytest.raises(LeadershipLostError, match="unknown"):
        rig.do(lambda: journal.write(b"body", 1, 0), thread)
    with pytest.raises(LeadershipLostError):
        journal.segments()


def test_segments_follow_each_other(rig: ClusterRig) -> None:
    """A full segment is sealed, and the next frame begins another one; the database has the same segments."""
    journal, thread, _ = filled(rig, 20, segment_bytes=600)
    segments = journal.segments()
    assert len(segments) > 3
    assert [info.is_sealed for info in segments] == [True] * (len(segments) - 1) + [False]
    assert [info.first_position for info in segments[1:]] == [info.last_position + 1 for info in segments[:-1]]
    reopened, _ = rig.journal(1, end=(40, journal.end_checksum))
    assert reopened.segments() == segments
    del thread


def test_removed_segments_are_gone(rig: ClusterRig) -> None:
    """Only sealed segments up to the limit go; what is left says where it begins."""
    journal, thread, _ = filled(rig, 20, segment_bytes=600)
    second = journal.segments()[1]
    assert len(rig.do(lambda: journal.remove_segments(second.last_position), thread)) == 2
    assert journal.first_position == second.last_position + 1
    assert rig.database.rows.first_position(0) == journal.first_position
    with pytest.raises(PositionRemovedError):
        journal.replay(0)
    assert len(rig.do(lambda: list(journal.replay(second.last_position)), thread)) == 40 - second.last_position


def test_rows_of_the_inbox_go_with_their_frame(rig: ClusterRig) -> None:
    """The rows that are attached to a position are deleted with the frame that contains it, and no others."""
    for row in (1, 2, 3):
        InboxInserted(row, 0, b"").apply(rig.database.rows)
    journal, thread = rig.journal(rig.take())
    journal.attach_inbox(2, [1, 2])
    journal.attach_inbox(3, [3])
    rig.do(lambda: journal.write(b"body", 2, 0), thread)
    assert set(rig.database.rows.inbox) == {3}
    rig.do(lambda: journal.write(b"body", 1, 0), thread)
    assert not rig.database.rows.inbox


def test_closed_journal_refuses_calls(rig: ClusterRig) -> None:
    """After `close`, calls are errors; closing again is harmless."""
    journal, _ = rig.journal(rig.take())
    journal.close()
    journal.close()
    with pytest.raises(JournalClosedError):
        journal.reserve(1)
