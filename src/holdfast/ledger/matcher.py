"""Matches ready jobs with sessions that have credits, with a limited amount of work per turn.

Invariant: after a turn that did not run out of steps, no session with credits could be granted a job. So a turn checks
only changes: tracks (queue and route) that have changed, and sessions that are new or whose leases have changed. If the
steps run out, the next turn, which follows at once, continues.

A session that cannot be granted a job is set aside: a silent one until its worker sends a message, one whose worker
runs a job in quarantine (see `core/quarantine.py`) until its leases change. The latter is also checked every second,
because a quarantine ends by time.
"""

from collections import OrderedDict
from typing import Generic, Protocol, TypeVar

from holdfast.core.lane_order import LaneOrder, RouteFilter
from holdfast.core.model import Now
from holdfast.ledger.coordinator import EVENT_STEPS, Coordinator
from holdfast.ledger.idle_workers import IdleWorkers, Want

#: The number of index entries that can be read in the time of one step.
_VISITS_PER_STEP = 8
#: How often sessions with a job in quarantine are checked.
_LOOK_MS = 1_000

T_contra = TypeVar("T_contra", contravariant=True)
S = TypeVar("S")


class Granter(Protocol[T_contra]):
    """The operations on a session that the matcher needs."""

    def grant(self, session: T_contra, count: int, now: Now) -> int | None:
        """Grants up to `count` jobs and returns their number; None if the journal has no space."""
        ...

    def is_silent(self, session: T_contra, now: Now) -> bool:
        """Whether the worker has missed its heartbeats."""
        ...

    def is_free(self, session: T_contra) -> bool:
        """Whether the worker holds no lease."""
        ...


class Matcher(Generic[S]):
    """Keeps the sessions with credits, and grants jobs to them."""

    def __init__(self, coordinator: Coordinator, granter: Granter[S]) -> None:
        self._coordinator = coordinator
        self._ready, self._leases = coordinator.ledger.state.ready, coordinator.ledger.leases
        self._granter = granter
        self.idle: IdleWorkers[S] = IdleWorkers()
        self._newcomers: OrderedDict[S, None] = OrderedDict()
        #: The changed tracks; the dict belongs to the `LaneOrder`.
        self._news: OrderedDict[Want, None] = OrderedDict()
        self._alone: dict[S, None] = {}
        self._silent: dict[S, None] = {}
        self._looked_ms = 0
        self._is_starved = False
        self._spent = 0
        self._visits_before = 0

    # -- sessions

    @property
    def is_watching(self) -> bool:
        """Whether any session has credits."""
        return bool(self.idle.size or self._alone or self._silent)

    def join(self, session: S, route_filter: RouteFilter) -> None:
        """Registers a session."""
        self.idle.join(session, route_filter)

    def part(self, session: S) -> None:
        """Removes a session that has ended."""
        self.leave(session)
        self.idle.part(session)

    def feed(self, session: S) -> None:
        """Adds a session that has credits, or has more of them."""
        if session not in self._silent and session not in self._alone:
            self.idle.add(session)
        self._newcomers[session] = None

    def leave(self, session: S) -> None:
        """Removes a session that has no credits any more."""
        self.idle.discard(session)
        for sessions in (self._newcomers, self._alone, self._silent):
            sessions.pop(session, None)

    def heard(self, session: S) -> None:
        """Records a message of the worker: a session that was silent is served again."""
        if session in self._silent:
            del self._silent[session]
            self.feed(session)
            self._coordinator.wake()

    def freed(self, session: S) -> None:
        """Checks a session again, because leases of its worker have ended."""
        if session in self._alone:
            del self._alone[session]
            self.feed(session)
        elif session in self.idle:
            self._newcomers[session] = None

    # -- a turn

    def match(self, now: Now) -> None:
        """Grants ready jobs to sessions with credits, fairly, until jobs, sessions or the turn's steps run out."""
        order = self._order(now)
        news, newcomers = order.news(), self._newcomers
        self._news = news
        if self._alone:
            self._look_again(now)
        if not (news or newcomers):
            return
        if not order.filled or not self.idle.size:
            news.clear()
            newcomers.clear()
            return
        self._is_starved, self._spent, self._visits_before = False, 0, order.visits + self.idle.visits
        while (news or newcomers) and self._may_go_on(order):
            if news:
                want, _ = news.popitem(last=False)
                if not self._serve_track(order, want, now):
                    news[want] = None
                    news.move_to_end(want, last=False)
            else:
                session, _ = newcomers.popitem(last=False)
                if not self._serve_newcomer(order, session, now) and session in self.idle:
                    newcomers[session] = None
                    newcomers.move_to_end(session, last=False)
        if (self._news or self._newcomers) and not self._is_starved:
            self._coordinator.wake()

    def _look_again(self, now: Now) -> None:
        if now.served_ms - self._looked_ms >= _LOOK_MS:
            self._looked_ms = now.served_ms
            for session in list(self._alone):
                self.freed(session)

    def _order(self, now: Now) -> LaneOrder:
        return self._ready.order(self._leases.aging_ms, now.log_ms)

    def _may_go_on(self, order: LaneOrder) -> bool:
        visits = order.visits + self.idle.visits - self._visits_before
        return not self._is_starved and self._spent + visits // _VISITS_PER_STEP < self._coordinator.turn_steps

    def _serve_track(self, order: LaneOrder, track: Want, now: Now) -> bool:
        """Serves sessions that name the queue, then those for all queues; False if there is work left."""
        queue, route = track
        if order.is_held(queue, route):
            if not self._serve_free(track, now):  # one job, for the first free worker
                self._serve_free(("", route), now)
            return not self._is_starved
        return self._serve(order, track, now) and self._serve(order, ("", route), now)

    def _serve_newcomer(self, order: LaneOrder, session: S, now: Now) -> bool:
        while session in self.idle:
            track = order.next_track(self.idle.wanted_by(session))
            if track is None:
                return True
            if order.is_held(*track):
                if self._granter.is_free(session) and self._is_able(session, now):
                    self._grant(session, 1, now)
                return not self._is_starved
            if not self._serve_track(order, track, now):
                return False
        return True

    def _serve(self, order: LaneOrder, want: Want, now: Now) -> bool:
        """Distributes ready jobs over the sessions that can run them; False if steps or journal space ran out."""
        while self.idle.has(want) and (ready := order.ready_in(*want)) and (rivals := self.idle.rivals(want, ready)):
            for left in range(rivals, 0, -1):
                if not self._may_go_on(order):
                    return False
                session = self.idle.pick(want)
                if session is None:
                    return True
                if self._is_able(session, now):
                    ready -= self._grant(session, -(-ready // left), now)
                if ready <= 0 or self._is_starved:
                    break
            if self._is_starved:
                return False
        return True

    def _serve_free(self, want: Want, now: Now) -> bool:
        """Grants a job in quarantine to the first worker without leases; whether there was one."""
        for session in [one for one in self.idle.all_of(want) if self._granter.is_free(one)]:
            if self._is_able(session, now):
                self._grant(session, 1, now)
                return True
        return False

    def _is_able(self, session: S, now: Now) -> bool:
        if not self._granter.is_silent(session, now):
            return True
        self.idle.discard(session)
        self._silent[session] = None
        return False

    def _grant(self, session: S, count: int, now: Now) -> int:
        granted = self._granter.grant(session, count, now)
        self._is_starved = granted is None
        self._spent += EVENT_STEPS + (granted or 0)
        self._order(now)  # updates the index after the grant
        if granted == 0:
            self.idle.discard(session)
            self._alone[session] = None
        return granted or 0
