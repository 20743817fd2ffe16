"""Brings ready jobs and sessions with room together, a bounded amount of work a turn.

Invariant: after a turn that did not run out of steps, no session with room could be granted a job. So a turn looks only
at what is new: tracks (queue and route) that have changed, and sessions that have come or whose leases have changed.
What a turn leaves is taken up by the next one, which comes at once.

A session that cannot be granted anything is set aside: a silent one until it is heard, one that runs a job on its last
chance until its leases change, and it is looked at again every second, because its solitude ends by time.
"""

from collections import OrderedDict
from typing import Generic, Protocol, TypeVar

from holdfast.core.lane_order import LaneOrder, Wanted
from holdfast.core.model import Now
from holdfast.ledger.coordinator import EVENT_STEPS, Coordinator
from holdfast.ledger.idle_workers import IdleWorkers, Want

#: How many entries are looked at in the time of a step.
_VISITS_PER_STEP = 8
#: How often sessions that run a job on its last chance are looked at.
_LOOK_MS = 1_000

T_contra = TypeVar("T_contra", contravariant=True)
S = TypeVar("S")


class Granter(Protocol[T_contra]):
    """What a session can be asked and given."""

    def grant(self, session: T_contra, count: int, now: Now) -> int | None:
        """Grants up to `count` jobs and says how many; None if the journal has no room."""
        ...

    def is_silent(self, session: T_contra, now: Now) -> bool:
        """Whether the worker has missed its heartbeats."""
        ...

    def is_free(self, session: T_contra) -> bool:
        """Whether the worker holds no lease."""
        ...


class Matcher(Generic[S]):
    """Keeps the sessions that have room, and serves them."""

    def __init__(self, coordinator: Coordinator, granter: Granter[S]) -> None:
        self._coordinator = coordinator
        self._ready, self._leases = coordinator.ledger.book.ready, coordinator.ledger.leases
        self._granter = granter
        self.idle: IdleWorkers[S] = IdleWorkers()
        self._newcomers: OrderedDict[S, None] = OrderedDict()
        #: The order's own.
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
        """Whether any session has room."""
        return bool(self.idle.size or self._alone or self._silent)

    def join(self, session: S, wanted: Wanted) -> None:
        """A session begins."""
        self.idle.join(session, wanted)

    def part(self, session: S) -> None:
        """A session is over."""
        self.leave(session)
        self.idle.part(session)

    def feed(self, session: S) -> None:
        """A session has room, or more of it."""
        if session not in self._silent and session not in self._alone:
            self.idle.add(session)
        self._newcomers[session] = None

    def leave(self, session: S) -> None:
        """A session has no room any more."""
        self.idle.discard(session)
        for sessions in (self._newcomers, self._alone, self._silent):
            sessions.pop(session, None)

    def heard(self, session: S) -> None:
        """A sign of life."""
        if session in self._silent:
            del self._silent[session]
            self.feed(session)
            self._coordinator.wake()

    def freed(self, session: S) -> None:
        """Some of the worker's leases have ended."""
        if session in self._alone:
            del self._alone[session]
            self.feed(session)
        elif session in self.idle:
            self._newcomers[session] = None

    # -- a turn

    def match(self, now: Now) -> None:
        """Grants ready jobs to sessions with room, fairly, until one of the two or the turn's steps run out."""
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
        """Serves those who name the queue, then those who take all; whether there is nothing left to do for now."""
        queue, route = track
        if order.is_held(queue, route):
            if not self._serve_free(track, now):  # one job: the first that is free has it
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
        """Shares ready jobs out among the sessions that want them; False if steps or the journal's room ran out."""
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
        """A job that waits for a worker of its own goes to the first that holds nothing."""
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
        self._order(now)  # takes note of what has gone
        if granted == 0:
            self.idle.discard(session)
            self._alone[session] = None
        return granted or 0
