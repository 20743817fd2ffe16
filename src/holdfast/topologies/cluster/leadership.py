"""The policy of leadership: which node leads which shard. No clock, no database, no state.

Every node computes the same plan from a view of the cluster, so that two nodes rarely try to take the same shard. A
stale view cannot do harm: `Registry.take` refuses another epoch than the one that was seen.

Invariants:
- Only a candidate takes a shard: a live node that is not draining and follows the shard without a divergence.
- A node takes a shard when its lease has ended and the plan gives it the shard, or when the shard is handed over to it.
- A vacant shard that its first choice does not take goes to the next choice after `patience_ms`, and so on.
- Shards move for balance only if every shard has a leader, and only from a node that has two more than the other one,
  so that a balanced cluster stays as it is. A draining node hands over its shards in any case.
"""

import zlib
from collections.abc import Iterator, Mapping

import msgspec

from holdfast.topologies.cluster.ports import ClusterView, NodeRecord, NodeView, ShardView

SERVING, DRAINING = "serving", "draining"
#: A follower that is further behind is chosen only if there is no other: its takeover would take long.
LAG_MAX = 100_000


class Handover(msgspec.Struct, frozen=True):
    """A move of one shard; the successor is empty if the shard is only given up."""

    shard: int
    leader: str
    successor: str


class LeadershipPlan:
    """The next steps of the nodes of one view. `lease_ms` is also the silence after which a node counts as gone."""

    def __init__(self, view: ClusterView, lease_ms: int) -> None:
        self._view = view
        self._lease_ms = lease_ms
        self._live = {node.record.name: node for node in view.nodes if is_live(node, lease_ms)}
        self._patience_ms = max(1, lease_ms // 4)
        self._led = dict.fromkeys(sorted(self._live), 0)
        for shard in view.shards:
            if not is_vacant(shard) and shard.holder in self._led:
                self._led[shard.holder] += 1

    # -- vacant shards

    def to_take(self, node: NodeRecord) -> list[ShardView]:
        """Returns the vacant shards that this node should take now."""
        return [shard for shard, names in self._choices() if node.name in names]

    def _choices(self) -> Iterator[tuple[ShardView, list[str]]]:
        """Yields each vacant shard with the nodes that may take it; the first of them counts as its leader."""
        led = dict(self._led)
        for shard in filter(is_vacant, self._view.shards):
            order = self._order(shard, led)
            if not order:
                continue
            led[order[0]] += 1
            waited = min(max(0, -shard.remaining_ms) // self._patience_ms, len(order) - 1)
            yield shard, order[: waited + 1]

    def _order(self, shard: ShardView, led: Mapping[str, int]) -> list[str]:
        """Returns the candidates for a shard, the best first; the successor that the last leader named is the best."""
        names = [name for name, node in self._live.items() if is_candidate(node, shard.shard)]
        return sorted(names, key=lambda name: (name != shard.successor, *self._cost(shard, name, led)))

    def _cost(self, shard: ShardView, name: str, led: Mapping[str, int]) -> tuple[bool, int, int, str]:
        is_behind = not self._is_close(shard, name)
        return is_behind, led[name], zlib.crc32(f"{shard.shard}/{name}".encode()), name

    def _is_close(self, shard: ShardView, name: str) -> bool:
        """Whether a node has applied almost all of a shard."""
        return shard.end_position - self._live[name].record.applied.get(shard.shard, 0) <= LAG_MAX

    # -- moves

    def to_hand_over(self, node: NodeRecord) -> Handover | None:
        """Returns the next shard that this node should hand over, if any."""
        moves = self._drains(node) if node.state == DRAINING else self._moves()
        return next((move for move in moves if move.leader == node.name), None)

    def _drains(self, node: NodeRecord) -> Iterator[Handover]:
        for shard in self._view.shards:
            if shard.holder == node.name and not is_vacant(shard):
                yield Handover(shard.shard, node.name, next(iter(self._heirs(shard, self._led)), ""))

    def _heirs(self, shard: ShardView, led: Mapping[str, int]) -> list[str]:
        """Returns the candidates for a shard that would take it over soon, without its leader."""
        names = [name for name in self._order(shard, led) if name != shard.holder]
        return [name for name in names if self._is_close(shard, name)]

    def _moves(self) -> Iterator[Handover]:
        """Yields moves until no leader has two shards more than a node that could take one of them."""
        if any(map(is_vacant, self._view.shards)):
            return
        led, moved = dict(self._led), set[int]()
        while (move := self._next_move(led, moved)) is not None:
            led[move.leader] -= 1
            led[move.successor] += 1
            moved.add(move.shard)
            yield move

    def _next_move(self, led: Mapping[str, int], moved: set[int]) -> Handover | None:
        least = min((led[name] for name, node in self._live.items() if node.record.state == SERVING), default=0)
        # In a balanced cluster there are none, however many shards it has.
        shards = [
            shard for shard in self._view.shards if shard.shard not in moved and led.get(shard.holder, 0) - least > 1
        ]
        for shard in sorted(shards, key=lambda shard: (-led[shard.holder], shard.holder, shard.shard)):
            heirs = sorted(self._heirs(shard, led), key=lambda name: (led[name], name))
            if heirs and led[shard.holder] - led[heirs[0]] > 1:
                return Handover(shard.shard, shard.holder, heirs[0])
        return None


def is_vacant(shard: ShardView) -> bool:
    """Returns whether a shard may be taken."""
    return shard.remaining_ms <= 0


def is_live(node: NodeView, lease_ms: int) -> bool:
    """Returns whether a node counts as running."""
    return node.silent_ms < lease_ms


def is_candidate(node: NodeView, shard: int) -> bool:
    """Returns whether a node may lead a shard: a node leaves out of `applied` what it cannot follow."""
    return node.record.state == SERVING and shard in node.record.applied


def writable_events(view: ClusterView, lease_ms: int) -> frozenset[str]:
    """Returns the names of the events that a leader may write: all live nodes know them. Empty without a live node."""
    known = [node.record.events for node in view.nodes if is_live(node, lease_ms)]
    return frozenset.intersection(*known) if known else frozenset()
