"""The policy of leadership: which node takes, keeps and hands over which shard."""

from collections.abc import Mapping, Sequence

import pytest
from msgspec import structs

from holdfast.core.commands import Refusal
from holdfast.core.events import Noted, Started
from holdfast.topologies.cluster.event_versions import KNOWN_EVENTS, EventGate
from holdfast.topologies.cluster.leadership import LAG_MAX, Handover, LeadershipPlan, writable_events
from holdfast.topologies.cluster.lease_deadline import LeaseDeadline
from holdfast.topologies.cluster.ports import ClusterView, NodeView, ShardView
from tests.unit.topologies.cluster.cluster_rig import LEASE_MS, ClusterRig, node_record


def view(nodes: Sequence[NodeView], leaders: Mapping[int, str], **changes: object) -> ClusterView:
    """Returns a view in which these nodes lead these shards; one without a name is vacant."""
    shards = [
        ShardView(shard, 1, name, f"{name}-1", LEASE_MS if name else 0, "", 10) for shard, name in leaders.items()
    ]
    return ClusterView(0, list(nodes), [structs.replace(shard, **changes) for shard in shards])


def nodes(names: str, shards: int, **changes: object) -> list[NodeView]:
    """Returns nodes with names of one letter that follow all shards."""
    fields: dict[str, object] = {"applied": dict.fromkeys(range(shards), 10), **changes}
    return [NodeView(node_record(name, **fields), 0) for name in names]


def taken(seen: ClusterView) -> dict[str, list[int]]:
    """Returns the shards that each node would take now."""
    plan = LeadershipPlan(seen, LEASE_MS)
    return {node.record.name: [shard.shard for shard in plan.to_take(node.record)] for node in seen.nodes}


def moves(seen: ClusterView) -> list[Handover]:
    """Returns the next move of each node."""
    plan = LeadershipPlan(seen, LEASE_MS)
    return [move for node in seen.nodes if (move := plan.to_hand_over(node.record)) is not None]


@pytest.mark.parametrize(("names", "shards"), [("a", 5), ("abc", 1), ("abc", 3), ("abc", 7), ("abcdefg", 100)])
def test_vacant_shards_are_spread_and_taken_once(names: str, shards: int) -> None:
    """Each vacant shard is taken by exactly one node, and the numbers differ by at most one."""
    plan = taken(view(nodes(names, shards), dict.fromkeys(range(shards), "")))
    assert sorted(shard for some in plan.values() for shard in some) == list(range(shards))
    counts = [len(some) for some in plan.values()]
    assert max(counts) - min(counts) <= 1


def test_nodes_agree_whatever_the_order_of_the_view_is() -> None:
    """The plan depends on the contents of a view, not on its order."""
    seen = view(nodes("abc", 6), dict.fromkeys(range(6), ""))
    assert taken(seen) == taken(structs.replace(seen, nodes=seen.nodes[::-1]))


def test_shard_with_a_lease_is_not_taken() -> None:
    """A shard whose lease runs is left alone, also if its leader is silent."""
    seen = view([structs.replace(node, silent_ms=2 * LEASE_MS) for node in nodes("a", 1)] + nodes("b", 1), {0: "a"})
    assert taken(seen) == {"a": [], "b": []}


def test_successor_takes_the_shard_that_was_handed_over() -> None:
    """The node that the last leader named takes the shard, also if it leads more than others."""
    seen = view(nodes("abc", 3), {0: "", 1: "b", 2: "b"})
    handed = structs.replace(seen, shards=[structs.replace(seen.shards[0], successor="b"), *seen.shards[1:]])
    assert taken(handed) == {"a": [], "b": [0], "c": []}


@pytest.mark.parametrize(
    "unfit",
    [{"state": "draining"}, {"applied": {}}],
    ids=["draining", "diverged"],
)
def test_unfit_node_takes_nothing(unfit: dict[str, object]) -> None:
    """A draining node, and one that does not follow the shard, are passed over."""
    assert taken(view(nodes("a", 1, **unfit) + nodes("b", 1), {0: ""})) == {"a": [], "b": [0]}


def test_silent_node_is_passed_over() -> None:
    """A node without a beat for as long as a lease counts as gone."""
    gone = [structs.replace(node, silent_ms=LEASE_MS) for node in nodes("a", 2)]
    assert taken(view(gone + nodes("b", 2), {0: "", 1: ""})) == {"a": [], "b": [0, 1]}


def test_follower_far_behind_is_the_last_choice() -> None:
    """A node whose takeover would take long is chosen only if there is no other."""
    behind = nodes("a", 1, applied={0: 0})
    seen = view(behind + nodes("b", 1, applied={0: LAG_MAX}), {0: ""}, end_position=LAG_MAX + 1)
    assert taken(seen) == {"a": [], "b": [0]}
    assert taken(view(behind, {0: ""}, end_position=LAG_MAX + 1)) == {"a": [0]}


def test_next_choice_takes_what_the_first_does_not() -> None:
    """The longer a shard is vacant, the more nodes try to take it."""
    counts = [
        sum(map(len, taken(view(nodes("abc", 1), {0: ""}, remaining_ms=-vacant_ms)).values()))
        for vacant_ms in (0, LEASE_MS // 4, LEASE_MS, 10 * LEASE_MS)
    ]
    assert counts == [1, 2, 3, 3]


def test_new_node_gets_its_share_and_no_more() -> None:
    """One move at a time leads to an even spread, after which nothing moves."""
    leaders = dict.fromkeys(range(7), "a") | {5: "b", 6: "b"}
    done = list[Handover]()
    while step := moves(view(nodes("abc", 7), leaders)):
        leaders[step[0].shard] = step[0].successor
        done.append(step[0])
    counts = sorted(list(leaders.values()).count(name) for name in "abc")
    assert counts == [2, 2, 3]
    assert len(done) == 2


def test_large_cluster_is_balanced_after_a_node_joins() -> None:
    """With 1,000 shards on 100 nodes, a newcomer gets its ten shards from ten other nodes."""
    names = [f"node-{number}" for number in range(100)]
    applied = dict.fromkeys(range(1_000), 10)
    members = [NodeView(node_record(name, applied=applied), 0) for name in names]
    leaders = {shard: names[shard % 99] for shard in range(1_000)}
    planned = moves(view(members, leaders))
    assert len({move.leader for move in planned}) == len(planned) == 10
    assert {move.successor for move in planned} == {"node-99"}


def test_nodes_do_not_move_more_than_is_needed_at_once() -> None:
    """If all nodes act on the same view, the newcomer does not get too many shards."""
    leaders = {0: "a", 1: "a", 2: "b", 3: "b", 4: "c", 5: "c"}
    assert moves(view(nodes("abcd", 6), leaders)) == [Handover(0, "a", "d")]


def test_nothing_moves_while_a_shard_is_vacant() -> None:
    """Rebalancing waits until every shard has a leader."""
    assert moves(view(nodes("ab", 3), {0: "a", 1: "a", 2: ""})) == []


def test_shard_moves_only_to_a_node_that_is_close() -> None:
    """A follower that is far behind is no successor."""
    far = nodes("b", 2, applied={0: 0, 1: 0})
    assert moves(view(nodes("a", 2) + far, {0: "a", 1: "a"}, end_position=2 * LAG_MAX)) == []


def test_draining_node_hands_over_everything() -> None:
    """A draining node hands over one shard after the other, also without a successor."""
    draining = nodes("a", 2, state="draining")
    assert moves(view(draining + nodes("b", 2), {0: "a", 1: "a"})) == [Handover(0, "a", "b")]
    assert moves(view(draining + nodes("b", 2), {0: "", 1: "a"})) == [Handover(1, "a", "b")]
    assert moves(view(draining, {0: "a", 1: "a"})) == [Handover(0, "a", "")]


def test_events_that_a_live_node_does_not_know_are_not_written() -> None:
    """The leader writes only what every live node knows; a node that is gone does not count."""
    old = nodes("a", 1, events=KNOWN_EVENTS - {"Noted"})
    assert writable_events(view(old + nodes("b", 1), {0: "b"}), LEASE_MS) == KNOWN_EVENTS - {"Noted"}
    gone = [structs.replace(old[0], silent_ms=LEASE_MS)]
    assert writable_events(view(gone + nodes("b", 1), {0: "b"}), LEASE_MS) == KNOWN_EVENTS


def test_refusal_names_the_event() -> None:
    """A command whose event another node does not know is refused with the reason."""
    gate = EventGate()
    gate.writable = frozenset({"Started"})
    refusal = gate.refusal(Noted(0, "w", []))
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "EVENT_NOT_KNOWN_BY_ALL_NODES"
    assert "Noted" in refusal.message
    assert gate.refusal(Started(0, 1)) is None


def test_deadline_moves_forward_until_it_is_revoked() -> None:
    """An extension never shortens a lease, and none revives a revoked one."""
    rig = ClusterRig()
    lease = LeaseDeadline(rig.clock, 100)
    lease.extend(50)
    assert lease.left_ms == 100
    rig.pass_ms(100)
    assert lease.left_ms == 0
    lease.extend(200)
    assert lease.left_ms == 100
    lease.revoke()
    lease.extend(300)
    assert lease.has_ended
