"""The membership of one node process: its beats in the registry, its leases, and the shards that it takes and gives up.

Invariants:
- A lease is counted from before the call that took or renewed it was sent, and ends early (see lease_deadline.py).
- `on_lost` is called for every `on_leading`, at the latest by the deadline if the process runs then. A process that was
  stopped meanwhile finds its `LeaseDeadline` over before its next reply.
- An epoch that was lost is never led again: its last append may still be under way.
- A call of the registry with an unknown outcome changes nothing here; the next view tells what happened.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

import msgspec
from msgspec import structs

from holdfast.ledger.ports import Clock, Scheduler, SyncThread, Timer
from holdfast.topologies.cluster.call_queue import CallQueue
from holdfast.topologies.cluster.leadership import DRAINING, SERVING, Handover, LeadershipPlan
from holdfast.topologies.cluster.lease_deadline import LeaseDeadline, margin_ms
from holdfast.topologies.cluster.ports import (
    ClusterView,
    DatabaseLostError,
    DatabaseRefusedError,
    NodeRecord,
    Registry,
    ShardView,
)

#: Why a shard is not led any more.
LEASE_ENDED, TAKEN_OVER, HANDED_OVER = "lease-ended", "taken-over", "handed-over"
_BEATS_PER_LEASE = 3
#: A lease is looked at this much after its end in the last view.
_LOOK_AFTER_MS = 5


class MemberUser(Protocol):
    """Runs the coordinators of the shards that the member leads. Every method is called on the member's thread."""

    def on_leading(self, shard: int, epoch: int, lease: LeaseDeadline) -> None:
        """Called when this node leads a shard; it reads the tail and starts a coordinator."""
        ...

    def on_handing_over(self, shard: int, done: Callable[[], None]) -> None:
        """Called to stop the coordinator of a shard cleanly; `done` is called when all its replies have left."""
        ...

    def on_lost(self, shard: int, reason: str) -> None:
        """Called when this node does not lead a shard any more; no reply may leave, and its state is to be dropped."""
        ...

    def on_view(self, view: ClusterView) -> None:
        """Called with each new view of the cluster."""
        ...

    def on_failed(self, error: BaseException) -> None:
        """Called with an error of the registry that is a bug, not one of the database."""
        ...


class MemberPorts(msgspec.Struct, frozen=True):
    """The ports of a member. `sync` runs the calls of the registry, one at a time."""

    clock: Clock
    scheduler: Scheduler
    sync: SyncThread
    registry: Registry


class _Lead:
    """The leadership of one shard."""

    __slots__ = ("epoch", "lease", "move")

    def __init__(self, epoch: int, lease: LeaseDeadline) -> None:
        self.epoch = epoch
        self.lease = lease
        #: The move that was begun.
        self.move: Handover | None = None


class ClusterMember:
    """One node. Every method is called on one thread."""

    def __init__(
        self,
        ports: MemberPorts,
        user: MemberUser,
        record: NodeRecord,
        lease_ms: int,
        applied: Callable[[], Mapping[int, int]],
    ) -> None:
        """`applied` returns the positions of the shards that this node could lead; a diverged one is not in it."""
        self._ports = ports
        self._user = user
        self._record = structs.replace(record, state=SERVING)
        self._lease_ms = lease_ms
        self._interval_ms = max(1, lease_ms // _BEATS_PER_LEASE)
        self._applied = applied
        self._leads: dict[int, _Lead] = {}
        #: The epochs that this node may have taken without receiving the answer.
        self._unsure: dict[int, int] = {}
        self._calls = CallQueue(ports.sync)
        self._is_over = False
        #: Whether a beat waits or is under way, and whether another one is wanted after it.
        self._is_beating = self._is_beat_wanted = False
        self._beat_timer: Timer | None = None
        self._deadline_timer: Timer | None = None
        self._when_drained: Callable[[], None] | None = None
        #: The last problem with the database; empty if the last beat succeeded.
        self.problem = ""

    @property
    def leads(self) -> dict[int, int]:
        """The epochs of the shards that this node leads now."""
        return {shard: lead.epoch for shard, lead in self._leads.items()}

    @property
    def record(self) -> NodeRecord:
        """The entry of this node."""
        return structs.replace(self._record, applied=dict(self._applied()))

    def start(self) -> None:
        """Begins to beat."""
        self._beat()

    def wake(self) -> None:
        """Beats now, for example because the database has notified this node of a handover."""
        self._beat()

    def drain(self, done: Callable[[], None]) -> None:
        """Hands all shards over and takes no more; `done` is called when this node leads none."""
        self._record = structs.replace(self._record, state=DRAINING)
        self._when_drained = done
        self._beat()

    def give_up(self, shard: int) -> None:
        """Ends the lease of a shard that this node cannot lead; its coordinator does not run."""
        lead = self._leads.get(shard)
        if lead is not None:
            lead.move = Handover(shard, self._record.name, "")
            self._on_stopped(shard, lead)

    def leave(self, done: Callable[[], None]) -> None:
        """Stops to beat and removes the entry of this node; shards that it still leads are lost at once."""
        self._is_over = True
        for timer in (self._beat_timer, self._deadline_timer):
            if timer is not None:
                timer.cancel()
        for shard in list(self._leads):
            self._lose(shard, HANDED_OVER)
        self._calls.ask(lambda: partial(self._ports.registry.leave, self.record), lambda _: done())

    # -- beats

    def _beat(self) -> None:
        if self._is_beating or self._is_over:
            self._is_beat_wanted = True
            return
        self._is_beating = True
        sent = list[tuple[int, dict[int, int]]]()

        def prepare() -> Callable[[], ClusterView]:
            self._is_beat_wanted = False
            sent.append((self._ports.clock.steady_ms(), self.leads))
            return partial(self._ports.registry.beat, self.record, sent[0][1], self._lease_ms)

        self._calls.ask(prepare, lambda answer: self._on_beat(answer, *sent[0]))

    def _on_beat(self, answer: ClusterView | BaseException, sent_ms: int, leads: Mapping[int, int]) -> None:
        self._is_beating = False
        if self._is_over:
            return
        if isinstance(answer, BaseException):
            self._on_error(answer)
            self._beat_later(self._interval_ms // 4)
            return
        self.problem = ""
        shards = {shard.shard: shard for shard in answer.shards}
        for number, epoch in leads.items():
            self._renew(shards[number], epoch, sent_ms)
        for number in list(self._unsure):
            self._adopt(shards[number], sent_ms)
        self._user.on_view(answer)
        self._act(answer)
        self._beat_later(0 if self._is_beat_wanted else self._until_next_ms(answer))

    def _renew(self, shard: ShardView, epoch: int, sent_ms: int) -> None:
        """Extends a lease that the beat has renewed; another epoch, or a lease that has ended, is lost."""
        lead = self._leads.get(shard.shard)
        if lead is None or lead.epoch != epoch:
            return
        if not self._is_held(shard, epoch):
            self._lose(shard.shard, TAKEN_OVER if shard.epoch != epoch else LEASE_ENDED)
        elif lead.lease.has_ended:
            self._lose(shard.shard, LEASE_ENDED)
        else:
            lead.lease.extend(self._end_ms(sent_ms, self._lease_ms))
            self._watch()

    def _adopt(self, shard: ShardView, sent_ms: int) -> None:
        """Leads a shard that an unanswered call has taken, for the rest of that lease."""
        epoch = self._unsure[shard.shard]
        if shard.epoch < epoch:
            return  # the call may still be under way
        del self._unsure[shard.shard]
        if self._is_held(shard, epoch):
            self._lead(shard.shard, epoch, self._end_ms(sent_ms, shard.remaining_ms))

    def _is_held(self, shard: ShardView, epoch: int) -> bool:
        holder = (shard.epoch, shard.holder, shard.incarnation)
        return holder == (epoch, self._record.name, self._record.incarnation) and shard.remaining_ms > 0

    def _end_ms(self, sent_ms: int, lease_ms: int) -> int:
        return sent_ms + lease_ms - margin_ms(self._lease_ms)

    def _until_next_ms(self, view: ClusterView) -> int:
        """Returns the time until the next beat: sooner if the lease of another node ends before it is renewed."""
        ends = [shard.remaining_ms + _LOOK_AFTER_MS for shard in view.shards if shard.remaining_ms > 0]
        return max(1, min([self._interval_ms, *ends]))

    def _beat_later(self, delay_ms: int) -> None:
        if self._beat_timer is not None:
            self._beat_timer.cancel()
        if not self._is_over:
            self._beat_timer = self._ports.scheduler.later(delay_ms, self._beat)

    def _on_error(self, error: BaseException) -> None:
        if isinstance(error, DatabaseLostError | DatabaseRefusedError):
            self.problem = error.message
        else:
            self._user.on_failed(error)

    # -- taking and handing over

    def _act(self, view: ClusterView) -> None:
        plan, record = LeadershipPlan(view, self._lease_ms), self.record
        for shard in plan.to_take(record) if record.state == SERVING else ():
            self._take(shard)
        move = plan.to_hand_over(record)
        is_moving = any(lead.move for lead in self._leads.values())
        if move is not None and move.shard in self._leads and not is_moving:
            self._begin_move(move)
        self._check_drained()

    def _take(self, shard: ShardView) -> None:
        if shard.shard in self._leads:
            return
        sent = list[int]()

        def prepare() -> Callable[[], int | None]:
            sent.append(self._ports.clock.steady_ms())
            return partial(self._ports.registry.take, shard.shard, shard.epoch, self.record, self._lease_ms)

        self._unsure[shard.shard] = shard.epoch + 1
        self._calls.ask(prepare, lambda answer: self._on_taken(shard.shard, answer, *sent))

    def _on_taken(self, shard: int, answer: int | BaseException | None, sent_ms: int) -> None:
        if isinstance(answer, BaseException):
            self._on_error(answer)
            self._beat_later(self._interval_ms // 4)
            return
        self._unsure.pop(shard, None)
        if answer is not None and not self._is_over:
            self._lead(shard, answer, self._end_ms(sent_ms, self._lease_ms))

    def _lead(self, shard: int, epoch: int, end_ms: int) -> None:
        lease = LeaseDeadline(self._ports.clock, end_ms)
        if lease.has_ended:
            return  # the answer was late; the lease ends, and the shard is taken again under another epoch
        self._leads[shard] = _Lead(epoch, lease)
        self._watch()
        self._user.on_leading(shard, epoch, lease)

    def _begin_move(self, move: Handover) -> None:
        lead = self._leads[move.shard]
        lead.move = move
        self._user.on_handing_over(move.shard, lambda: self._on_stopped(move.shard, lead))

    def _on_stopped(self, shard: int, lead: _Lead) -> None:
        """Ends the lease in the database once all replies have left."""
        if self._leads.get(shard) is not lead or lead.move is None:
            return
        call = partial(self._ports.registry.hand_over, shard, lead.epoch, lead.move.successor)
        self._calls.ask(lambda: call, lambda answer: self._on_handed_over(shard, lead, answer))

    def _on_handed_over(self, shard: int, lead: _Lead, answer: object) -> None:
        if self._leads.get(shard) is not lead:
            return
        if isinstance(answer, DatabaseLostError):
            self._ports.scheduler.later(self._interval_ms // 4, lambda: self._on_stopped(shard, lead))
            return
        self._lose(shard, HANDED_OVER)
        self._beat()

    # -- losing

    def _lose(self, shard: int, reason: str) -> None:
        lead = self._leads.pop(shard)
        lead.lease.revoke()
        self._user.on_lost(shard, reason)
        self._check_drained()

    def _check_drained(self) -> None:
        if self._when_drained is not None and not self._leads and not self._unsure:
            done, self._when_drained = self._when_drained, None
            done()

    def _watch(self) -> None:
        """Plans the next look at the deadlines."""
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
            self._deadline_timer = None
        if self._leads and not self._is_over:
            left_ms = min(lead.lease.left_ms for lead in self._leads.values())
            self._deadline_timer = self._ports.scheduler.later(left_ms, self._on_deadline)

    def _on_deadline(self) -> None:
        self._deadline_timer = None
        for shard in [shard for shard, lead in self._leads.items() if lead.lease.has_ended]:
            self._lose(shard, LEASE_ENDED)
        self._watch()
