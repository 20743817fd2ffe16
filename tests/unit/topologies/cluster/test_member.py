"""The member of a node: beats, leases, takeovers and handovers."""

from collections.abc import Callable, Iterator

import pytest

from holdfast.topologies.cluster.lease_deadline import LeaseDeadline
from holdfast.topologies.cluster.member import HANDED_OVER, LEASE_ENDED, TAKEN_OVER, ClusterMember, MemberPorts
from holdfast.topologies.cluster.ports import ClusterView
from holdfast_lab.simulation.database_connections import LinkFaults, SimulatedRegistry
from holdfast_lab.simulation.database_rows import LeaderRow
from tests.unit.topologies.cluster.cluster_rig import LEASE_MS, ClusterRig, node_record


class RecordedUser:
    """Records what the member says; it needs no time to stop a coordinator."""

    def __init__(self) -> None:
        self.said: list[tuple[str, int, object]] = []
        self.leases: dict[int, LeaseDeadline] = {}
        self.views: list[ClusterView] = []
        self.is_slow = False
        self.when_stopped: list[Callable[[], None]] = []

    def on_leading(self, shard: int, epoch: int, lease: LeaseDeadline) -> None:
        self.said.append(("leading", shard, epoch))
        self.leases[shard] = lease

    def on_handing_over(self, shard: int, done: Callable[[], None]) -> None:
        self.said.append(("handing over", shard, ""))
        if self.is_slow:
            self.when_stopped.append(done)
        else:
            done()

    def on_lost(self, shard: int, reason: str) -> None:
        self.said.append(("lost", shard, reason))

    def on_view(self, view: ClusterView) -> None:
        self.views.append(view)

    def on_failed(self, error: BaseException) -> None:
        raise AssertionError("the registry failed") from error


class RigNode:
    """One member, and its connection."""

    def __init__(self, rig: ClusterRig, name: str) -> None:
        self.user = RecordedUser()
        self.faults = LinkFaults()
        self.applied = dict.fromkeys(rig.database.rows.leaders, 0)
        thread = rig.thread()
        ports = MemberPorts(rig.clock, rig.process, thread, SimulatedRegistry(rig.link(thread, self.faults)))
        self.member = ClusterMember(ports, self.user, node_record(name), LEASE_MS, lambda: self.applied)

    @property
    def leads(self) -> list[int]:
        return sorted(self.member.leads)


@pytest.fixture
def rig() -> Iterator[ClusterRig]:
    """A database with two shards."""
    rig = ClusterRig(shards=2)
    yield rig
    rig.close()


def started(rig: ClusterRig, name: str = "a") -> RigNode:
    """Returns a node that has received its first view, and leads what it should."""
    node = RigNode(rig, name)
    node.member.start()
    rig.until(lambda: bool(node.user.views))
    rig.pass_ms(LEASE_MS)
    return node


def test_lone_node_leads_every_shard(rig: ClusterRig) -> None:
    """A node takes the shards that no node leads, and keeps them by its beats."""
    node = started(rig)
    assert node.user.said == [("leading", 0, 1), ("leading", 1, 1)]
    rig.pass_ms(10 * LEASE_MS)
    assert node.leads == [0, 1]
    assert all(lease.left_ms > 0 for lease in node.user.leases.values())


def test_second_node_gets_its_share(rig: ClusterRig) -> None:
    """A node that joins leads one of two shards; the other node has handed it over."""
    first, second = started(rig, "a"), started(rig, "b")
    rig.pass_ms(2 * LEASE_MS)
    assert [len(first.leads), len(second.leads)] == [1, 1]
    assert ("lost", second.leads[0], HANDED_OVER) in first.user.said


def test_cut_off_leader_stops_before_its_lease_ends_in_the_database(rig: ClusterRig) -> None:
    """Without an answer of the database, the leader gives up while no other node may take the shard yet."""
    node = started(rig)
    node.faults.lost_request = 100
    rig.until(lambda: not node.leads)
    assert ("lost", 0, LEASE_ENDED) in node.user.said
    assert all(row.ends_ms > rig.database.now_ms() for row in rig.database.rows.leaders.values())


def test_leader_that_was_only_slow_keeps_its_shards(rig: ClusterRig) -> None:
    """A few lost beats cost no leadership."""
    node = started(rig)
    node.faults.blocked_until_us = rig.time.now_us + LEASE_MS * 1_000 // 3
    rig.pass_ms(3 * LEASE_MS)
    assert node.leads == [0, 1]
    assert all(kind == "leading" for kind, _, _ in node.user.said)


def test_deadline_is_never_after_the_end_of_the_lease(rig: ClusterRig) -> None:
    """However long the database takes for a beat, the lease of the leader ends first by its own clock."""
    node = started(rig)
    node.faults.lost_answer = 20
    for _ in range(2_000):
        if rig.time.steps % 100 == 0:
            rig.database.standby_stalled_until_us = rig.time.now_us + LEASE_MS * 300
        assert rig.time.step()
        for shard, lease in node.user.leases.items():
            left_ms = rig.database.rows.leaders[shard].ends_ms - rig.database.now_ms()
            assert lease.has_ended or lease.left_ms < left_ms


def test_takeover_with_a_lost_answer_is_adopted(rig: ClusterRig) -> None:
    """A takeover whose answer was lost counts once a view shows it, under the epoch that was taken."""
    node = RigNode(rig, "a")
    node.member.start()
    rig.until(lambda: bool(node.user.views))
    node.faults.lost_answer = 100
    rig.until(lambda: all(row.epoch == 1 for row in rig.database.rows.leaders.values()))
    node.faults.lost_answer = 0
    rig.until(lambda: node.leads == [0, 1])
    assert sorted(node.user.said) == [("leading", 0, 1), ("leading", 1, 1)]
    ends = {shard: row.ends_ms - rig.database.now_ms() for shard, row in rig.database.rows.leaders.items()}
    assert all(node.user.leases[shard].left_ms < end for shard, end in ends.items())


def test_other_epoch_ends_the_leadership(rig: ClusterRig) -> None:
    """A leader that sees another epoch in a view stops at once."""
    node = started(rig)
    rows = rig.database.rows.leaders
    rows[0] = LeaderRow(2, "b", "b-1", rig.database.now_ms() + 10 * LEASE_MS)
    rig.until(lambda: node.leads == [1])
    assert node.user.said[-1] == ("lost", 0, TAKEN_OVER)


def test_lost_epoch_is_not_led_again(rig: ClusterRig) -> None:
    """After its deadline a node leads the shard only under a new epoch."""
    node = started(rig)
    node.faults.lost_answer = 100
    rig.until(lambda: not node.leads)
    node.faults.lost_answer = 0
    rig.until(lambda: node.leads == [0, 1])
    epochs = [epoch for kind, shard, epoch in node.user.said if (kind, shard) == ("leading", 0)]
    assert epochs == [1, 2]


def test_shard_that_is_not_followed_is_not_taken(rig: ClusterRig) -> None:
    """A node whose follower has diverged leaves the shard to others."""
    node = RigNode(rig, "a")
    del node.applied[0]
    node.member.start()
    rig.pass_ms(3 * LEASE_MS)
    assert node.leads == [1]


def test_drained_node_leads_nothing(rig: ClusterRig) -> None:
    """A draining node hands everything over, one shard after the other, and reports when it is done."""
    first, second = started(rig, "a"), started(rig, "b")
    drained = list[bool]()
    first.member.drain(lambda: drained.append(True))
    rig.until(lambda: bool(drained))
    rig.until(lambda: second.leads == [0, 1])
    assert first.leads == []


def test_handover_waits_until_the_coordinator_has_stopped(rig: ClusterRig) -> None:
    """The lease ends in the database only when the last reply has left, and the successor is named."""
    first, second = started(rig, "a"), started(rig, "b")
    del second
    rig.pass_ms(2 * LEASE_MS)
    (shard,) = first.leads
    first.user.is_slow = True
    first.member.drain(lambda: None)
    rig.until(lambda: bool(first.user.when_stopped))
    rig.pass_ms(LEASE_MS)
    row = rig.database.rows.leaders[shard]
    assert (row.holder, row.successor) == ("a", "")
    assert row.ends_ms > rig.database.now_ms()
    first.user.when_stopped[0]()
    rig.until(lambda: rig.database.rows.leaders[shard].successor == "b")


def test_shard_that_cannot_be_led_is_given_up(rig: ClusterRig) -> None:
    """A node that cannot start a coordinator ends its lease, so that another node takes over at once."""
    node = started(rig)
    del node.applied[0]
    node.member.give_up(0)
    rig.until(lambda: node.leads == [1])
    assert rig.database.rows.leaders[0].ends_ms <= rig.database.now_ms()
    rig.pass_ms(2 * LEASE_MS)
    assert node.leads == [1]


def test_node_that_leaves_is_gone(rig: ClusterRig) -> None:
    """`leave` removes the entry, and no beat follows."""
    node = started(rig)
    left = list[bool]()
    node.member.leave(lambda: left.append(True))
    rig.until(lambda: bool(left))
    assert not rig.database.rows.nodes
    rig.pass_ms(3 * LEASE_MS)
    assert not rig.database.rows.nodes


def test_second_node_of_the_same_name_is_refused(rig: ClusterRig) -> None:
    """The problem says that the name is taken, and the first node goes on."""
    first = started(rig, "a")
    second = RigNode(rig, "a")
    second.member._record = node_record("a", incarnation="a-2")
    second.member.start()
    rig.until(lambda: bool(second.member.problem))
    assert "taken" in second.member.problem
    assert first.leads == [0, 1]
