"""An index of sessions with credits, by the jobs that they can run.

Sessions with the same routes and queues form a *kind*. A *want* is a pair of queue and route, where an empty queue name
means all queues. For each want there is a row of kinds. Adding or removing a session changes its kind only. A kind
without sessions is removed from a row by the next `pick` there, and added again with its next session. So the cost of
finding a session for a job does not depend on the number of sessions.

Invariants: a session is in its kind at most once; a kind with sessions is in the row of each of its wants. Sessions of
a row take turns: each is picked once before any is picked again.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Generic, TypeVar

from holdfast.core.lane_order import RouteFilter

Want = tuple[str, str]

T = TypeVar("T")


class SessionKind(Generic[T]):
    """Sessions with the same routes and queues."""

    __slots__ = ("absent", "members", "sessions", "wants")

    def __init__(self, route_filter: RouteFilter) -> None:
        self.wants = [(queue, route) for queue in route_filter.queues or ("",) for route in route_filter.routes]
        #: The wants whose rows do not contain this kind.
        self.absent: set[Want] = set(self.wants)
        #: Sessions with credits; the next one to pick is first.
        self.sessions: OrderedDict[T, None] = OrderedDict()
        #: The number of all sessions of this kind, with or without credits.
        self.members = 0


class IdleWorkers(Generic[T]):
    """All kinds, and the rows that contain them."""

    __slots__ = ("_kind_of", "_kinds", "_rows", "size", "visits")

    def __init__(self) -> None:
        self._kinds: dict[RouteFilter, SessionKind[T]] = {}
        self._kind_of: dict[T, tuple[RouteFilter, SessionKind[T]]] = {}
        #: Each kind with the number of its sessions to pick before the next kind's turn; 0 means all of them.
        self._rows: dict[Want, OrderedDict[SessionKind[T], int]] = {}
        #: The number of sessions with credits; changed by this class only.
        self.size = 0
        #: The number of entries read so far, a measure of the work done.
        self.visits = 0

    def __len__(self) -> int:
        return self.size

    def __contains__(self, session: T) -> bool:
        known = self._kind_of.get(session)
        return known is not None and session in known[1].sessions

    # -- adding and removing

    def join(self, session: T, route_filter: RouteFilter) -> None:
        """Registers a session, which has no credits yet."""
        if session not in self._kind_of:
            kind = self._kinds.get(route_filter)
            if kind is None:
                kind = self._kinds[route_filter] = SessionKind(route_filter)
            kind.members += 1
            self._kind_of[session] = route_filter, kind

    def part(self, session: T) -> None:
        """Removes a session that has ended."""
        self.discard(session)
        route_filter, kind = self._kind_of.pop(session, (None, None))
        if kind is None or route_filter is None:
            return
        kind.members -= 1
        if not kind.members:
            del self._kinds[route_filter]
            for want in kind.wants:
                if want not in kind.absent:
                    self._drop(kind, want)

    def add(self, session: T) -> None:
        """Adds a registered session that has credits."""
        _, kind = self._kind_of[session]
        if session in kind.sessions:
            return
        kind.sessions[session] = None
        self.size += 1
        for want in kind.absent:
            self.visits += 1
            self._rows.setdefault(want, OrderedDict())[kind] = 0
        kind.absent.clear()

    def discard(self, session: T) -> None:
        """Removes a session that has no credits any more; it stays registered."""
        known = self._kind_of.get(session)
        if known is not None and session in known[1].sessions:
            del known[1].sessions[session]
            self.size -= 1

    # -- queries

    def wanted_by(self, session: T) -> RouteFilter:
        """Returns the jobs that a registered session can run."""
        return self._kind_of[session][0]

    def has(self, want: Want) -> bool:
        """False only if no session with credits can run such jobs."""
        return want in self._rows

    def rivals(self, want: Want, at_most: int) -> int:
        """Returns the number of sessions with credits that can run such jobs, at most `at_most`."""
        found = 0
        for kind in self._rows.get(want, ()):
            self.visits += 1
            found += len(kind.sessions)
            if found >= at_most:
                return at_most
        return found

    def pick(self, want: Want) -> T | None:
        """Returns the next session in turn that can run such jobs, if any; it stays in the index."""
        row = self._rows.get(want)
        while row:
            kind, left = next(iter(row.items()))
            self.visits += 1
            if not kind.sessions:
                self._drop(kind, want)
                continue
            left = (left or len(kind.sessions)) - 1
            row[kind] = left
            if not left:
                row.move_to_end(kind)
            session = next(iter(kind.sessions))
            kind.sessions.move_to_end(session)
            return session
        return None

    def all_of(self, want: Want) -> Iterable[T]:
        """Yields every session with credits that can run such jobs; valid until the next change."""
        for kind in self._rows.get(want, ()):
            for session in kind.sessions:
                self.visits += 1
                yield session

    def _drop(self, kind: SessionKind[T], want: Want) -> None:
        kind.absent.add(want)
        row = self._rows[want]
        del row[kind]
        if not row:
            del self._rows[want]
