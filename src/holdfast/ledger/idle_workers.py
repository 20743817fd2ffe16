"""Sessions that have room, found by what they can run.

Sessions that want the same (routes and queues) form a *kind*. A kind stands in one row for each want: a pair of queue
and route, where an empty queue name means all queues. A session comes and goes in its kind alone. A kind whose sessions
are all busy is taken out of a row when the row is next asked, and comes back with its next session. So finding a
session for a job costs the same however many sessions wait.

Invariants: a session is in its kind once or not at all; a kind with sessions is in every row of its wants. Sessions of
a row take turns: each is picked once before any is picked again.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Generic, TypeVar

from holdfast.core.lane_order import Wanted

Want = tuple[str, str]

T = TypeVar("T")


class SessionKind(Generic[T]):
    """Sessions that want the same."""

    __slots__ = ("absent", "members", "sessions", "wants")

    def __init__(self, wanted: Wanted) -> None:
        self.wants = [(queue, route) for queue in wanted.queues or ("",) for route in wanted.routes]
        #: The wants whose rows it is not in.
        self.absent: set[Want] = set(self.wants)
        #: Those that have room, the one that is picked next first.
        self.sessions: OrderedDict[T, None] = OrderedDict()
        #: All sessions of this kind, with room or without.
        self.members = 0


class IdleWorkers(Generic[T]):
    """All kinds, and the rows that they are found in."""

    __slots__ = ("_kind_of", "_kinds", "_rows", "size", "visits")

    def __init__(self) -> None:
        self._kinds: dict[Wanted, SessionKind[T]] = {}
        self._kind_of: dict[T, tuple[Wanted, SessionKind[T]]] = {}
        #: Each kind with how many of its sessions are still to be picked before the next kind's; 0: all of them.
        self._rows: dict[Want, OrderedDict[SessionKind[T], int]] = {}
        #: How many have room; only this class changes it.
        self.size = 0
        #: Entries that were looked at so far.
        self.visits = 0

    def __len__(self) -> int:
        return self.size

    def __contains__(self, session: T) -> bool:
        known = self._kind_of.get(session)
        return known is not None and session in known[1].sessions

    # -- coming and going

    def join(self, session: T, wanted: Wanted) -> None:
        """A session begins; it has no room yet."""
        if session not in self._kind_of:
            kind = self._kinds.get(wanted)
            if kind is None:
                kind = self._kinds[wanted] = SessionKind(wanted)
            kind.members += 1
            self._kind_of[session] = wanted, kind

    def part(self, session: T) -> None:
        """A session is over."""
        self.discard(session)
        wanted, kind = self._kind_of.pop(session, (None, None))
        if kind is None or wanted is None:
            return
        kind.members -= 1
        if not kind.members:
            del self._kinds[wanted]
            for want in kind.wants:
                if want not in kind.absent:
                    self._drop(kind, want)

    def add(self, session: T) -> None:
        """A session that has joined has room."""
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
        """A session has no room any more, if it had."""
        known = self._kind_of.get(session)
        if known is not None and session in known[1].sessions:
            del known[1].sessions[session]
            self.size -= 1

    # -- asking

    def wanted_by(self, session: T) -> Wanted:
        """What a session that has joined can run."""
        return self._kind_of[session][0]

    def has(self, want: Want) -> bool:
        """False if no session has room for such jobs."""
        return want in self._rows

    def rivals(self, want: Want, at_most: int) -> int:
        """How many sessions have room for such jobs; counted no further than `at_most`."""
        found = 0
        for kind in self._rows.get(want, ()):
            self.visits += 1
            found += len(kind.sessions)
            if found >= at_most:
                return at_most
        return found

    def pick(self, want: Want) -> T | None:
        """The session whose turn it is, if any has room for such jobs; it stays where it is found."""
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
        """Every session that has room for such jobs; valid until the next change."""
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
