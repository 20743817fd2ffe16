"""The store of a leader: what its coordinator gets, and the replies that may leave."""

from collections.abc import Iterator

import pytest

from holdfast.core import commands
from holdfast.core.commands import Refusal, Submitted
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.core.model import NewJob, Template
from holdfast.journal.errors import LeadershipLostError
from holdfast.journal.port import JournalConfig
from holdfast.ledger.coordinator import CommandLane, Coordinator, CoordinatorPorts, LoopConfig
from holdfast.ledger.past_events import PastEvents
from holdfast.ledger.recovery import ignore_progress
from holdfast.topologies.cluster.event_versions import EventGate
from holdfast.topologies.cluster.follower import TakenOver
from holdfast.topologies.cluster.journal import ShardStorage
from holdfast.topologies.cluster.lease_deadline import LeaseDeadline
from holdfast.topologies.cluster.store import ClusterStore, ShardLeadership
from holdfast_lab.simulation.database_connections import SimulatedFrameReader, SimulatedFrameWriter
from tests.unit.topologies.cluster.cluster_rig import CLUSTER_ID, LEASE_MS, ClusterRig, new_ledger


class Leader:
    """A coordinator that leads shard 0."""

    def __init__(self, rig: ClusterRig, lease: LeaseDeadline) -> None:
        self.rig = rig
        self.lease = lease
        self.events = EventGate()
        self.fatal = list[BaseException]()
        self.thread = rig.thread()
        storage = ShardStorage(
            SimulatedFrameWriter(rig.link(self.thread), 0),
            SimulatedFrameWriter(rig.link(self.thread), 0),
            lambda: SimulatedFrameReader(rig.link(self.thread), 0),
        )
        leadership = ShardLeadership(0, CLUSTER_ID, rig.take(), lease, self.events)
        taken = TakenOver(new_ledger(), 0, 0)
        self.store = ClusterStore(leadership, taken, storage, self.thread.wait, JournalConfig())
        rig.do(self._open, self.thread)
        ports = CoordinatorPorts(rig.clock, rig.process, self.thread, self.fatal.append)
        self.coordinator = Coordinator(self.store.ledger, self.store.journal, ports, LoopConfig())
        past = self.store.attach(self.coordinator)
        assert past is not None
        self.past: PastEvents = past
        self.coordinator.start()

    def _open(self) -> Ledger:
        return self.store.open(LedgerConfig(), 0, ignore_progress)

    def submit(self, job_id: str) -> list[object]:
        """Submits a job; the list receives the reply."""
        replies = list[object]()
        submit = commands.Submit([Template("echo")], [NewJob(job_id, 0, b"payload")])
        self.coordinator.call(CommandLane.SUBMIT, submit, replies.append)
        return replies

    def look(self, job_id: str) -> object:
        """Reads whether a job exists; returns the reply."""
        replies = list[object]()
        self.coordinator.read(CommandLane.SUBMIT, lambda ledger, _: ledger.job(job_id) is not None, replies.append)
        self.rig.until(lambda: bool(replies))
        return replies[0]


@pytest.fixture
def rig() -> Iterator[ClusterRig]:
    """A database with one shard."""
    rig = ClusterRig()
    yield rig
    rig.close()


def reason(reply: object) -> str:
    assert isinstance(reply, Refusal)
    return reply.reason


def submitted(leader: Leader, job_id: str) -> None:
    replies = leader.submit(job_id)
    leader.rig.until(lambda: bool(replies))
    assert isinstance(replies[0], Submitted)


def test_leader_serves_from_the_database(rig: ClusterRig) -> None:
    """A submit is acknowledged when its frame is in the database, and reads see it."""
    leader = Leader(rig, rig.lease())
    submitted(leader, "one")
    assert rig.database.rows.end_position(0) == leader.coordinator.commit.synced == 2
    assert leader.look("one") is True


def test_history_is_read_from_the_frames(rig: ClusterRig) -> None:
    """The past events are those of the shard, and the history of a job has its events only."""
    leader = Leader(rig, rig.lease())
    submitted(leader, "one")
    submitted(leader, "two")
    assert leader.past.first_position == 1
    walk = leader.past.walk(0)
    assert [position for position, _ in rig.do(lambda: walk.take(10), leader.thread)] == [1, 2, 3]
    history = leader.past.history("two")
    entries = [entry for some in rig.do(lambda: history.take(10), leader.thread) for entry in some]
    assert [entry.position for entry in entries] == [3]


def test_no_read_is_answered_after_the_lease(rig: ClusterRig) -> None:
    """A leader whose lease has ended refuses reads, because another node may have changed the state."""
    leader = Leader(rig, rig.lease(LEASE_MS))
    submitted(leader, "one")
    rig.pass_ms(LEASE_MS)
    assert reason(leader.look("one")) == "NOT_LEADER"


def test_heartbeat_is_not_answered_after_the_lease(rig: ClusterRig) -> None:
    """A heartbeat is answered without a frame, so it needs the lease."""
    leader = Leader(rig, rig.lease(LEASE_MS))
    rig.pass_ms(LEASE_MS)
    replies = list[object]()
    leader.coordinator.hear(commands.Extend("w", 1_000, frozenset(), 0), replies.append)
    rig.until(lambda: bool(replies))
    assert reason(replies[0]) == "NOT_LEADER"


def test_write_is_answered_after_the_lease_if_no_other_node_leads(rig: ClusterRig) -> None:
    """A frame that the database accepts proves that this epoch leads, whatever the local clock says."""
    leader = Leader(rig, rig.lease(LEASE_MS))
    rig.pass_ms(LEASE_MS)
    submitted(leader, "late")


def test_request_of_an_old_leader_has_no_reply_that_could_be_wrong(rig: ClusterRig) -> None:
    """After a takeover, a request that was decided gets an unknown outcome, and a later one is refused."""
    leader = Leader(rig, rig.lease())
    submitted(leader, "one")
    rig.pass_ms(2 * LEASE_MS)
    rig.take(name="b")
    late = leader.submit("late")
    rig.until(lambda: bool(leader.fatal))
    assert reason(late[0]) == "OUTCOME_UNKNOWN"
    assert isinstance(leader.fatal[0], LeadershipLostError)
    assert reason(leader.submit("later")[0]) == "NOT_LEADER"
    stopped = list[bool]()
    leader.coordinator.stop(lambda: stopped.append(True))
    assert stopped


def test_lost_leadership_that_a_command_finds_is_no_bug(rig: ClusterRig) -> None:
    """A command that meets a failed journal before its failure was reported is refused, and changes nothing."""
    leader = Leader(rig, rig.lease())
    submitted(leader, "one")
    rig.pass_ms(2 * LEASE_MS)
    rig.take(name="b")
    with pytest.raises(LeadershipLostError):
        rig.do(lambda: leader.store.journal.write(b"late", 1, 0), leader.thread)
    replies = leader.submit("late")
    rig.until(lambda: bool(replies))
    assert reason(replies[0]) == "NOT_LEADER"
    assert len(leader.fatal) == 1


def test_event_that_a_node_does_not_know_is_refused(rig: ClusterRig) -> None:
    """The command changes nothing; other commands go on."""
    leader = Leader(rig, rig.lease())
    submitted(leader, "one")
    leader.events.writable = frozenset({"Started"})
    replies = leader.submit("two")
    rig.until(lambda: bool(replies))
    assert reason(replies[0]) == "EVENT_NOT_KNOWN_BY_ALL_NODES"
    assert leader.look("two") is False
    leader.events.writable = EventGate().writable
    submitted(leader, "two")
