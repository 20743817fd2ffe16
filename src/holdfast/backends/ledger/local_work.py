"""`WorkApi` for workers in the coordinator's own process: a session without a wire."""

import asyncio
import re
from collections.abc import Callable, Collection, Iterable, Sequence

from holdfast import limits
from holdfast.backends.ports import Assignment, Directive, Introduction
from holdfast.coordinator.sessions import Dispatcher, Hello, Push, Session
from holdfast.core.commands import GrantedLease, ReportRow
from holdfast.core.lifecycle import TERMINAL
from holdfast.core.model import Extra, Note
from holdfast.errors import AbortedError, HoldfastError, InvalidArgumentError, UnavailableError

_NAME = re.compile(limits.NAME_PATTERN)
_NO_EXTRA = Extra()
#: The most room that one call may add, as over the wire.
_WANT_MAX = limits.LEASES_PER_GRANT_MAX * 10


class LocalWork:
    """Opens sessions with a dispatcher of this process."""

    def __init__(self, dispatcher: Dispatcher, *, lease_ms: int, heartbeat_ms: int) -> None:
        self._dispatcher = dispatcher
        self._terms = Directive(lease_ms=lease_ms, heartbeat_ms=heartbeat_ms)
        self._sessions: set[LocalSession] = set()
        self._is_stopping = False

    async def open(self, introduction: Introduction) -> "LocalSession":
        """Begins at once; the welcome follows when it is settled which leases the worker still has."""
        if self._is_stopping:
            raise UnavailableError("the server is stopping; try another, or again later", reason="STOPPING")
        session = LocalSession(self._dispatcher, self._terms, _hello(introduction), self._sessions.discard)
        self._sessions.add(session)
        session.attach()
        return session

    def stop(self) -> None:
        """Tells every worker that the server goes away; leases stay theirs."""
        self._is_stopping = True
        for session in self._sessions:
            session.stop()


class LocalSession:
    """One session. What the coordinator says is collected until the worker asks for it."""

    def __init__(
        self, dispatcher: Dispatcher, terms: Directive, hello: Hello, on_end: Callable[["LocalSession"], None]
    ) -> None:
        self._dispatcher = dispatcher
        self._terms = terms
        self._session = Session(hello, self._push, self._supersede)
        self._on_end = on_end
        self._inbox: list[Push] = []
        self._news = asyncio.Event()
        self._ending: HoldfastError | None = None
        self._is_stopping = False

    def attach(self) -> None:
        """Says hello."""
        self._dispatcher.attach(self._session)

    def stop(self) -> None:
        """The server goes away: the worker hears of it once, and keeps what it holds."""
        self._is_stopping = True
        self._news.set()

    async def next(self) -> Directive:
        """All that has been said since the last time, in one."""
        while True:
            if self._inbox:
                inbox, self._inbox = self._inbox, []
                return self._directive(inbox)
            self._refuse_if_ended()
            if self._is_stopping:
                self._ending = UnavailableError("the server has stopped", reason="STOPPING")
                return Directive(is_stopping=True)
            self._news.clear()
            await self._news.wait()

    async def want(self, count: int) -> None:
        """More room."""
        self._refuse_if_ended()
        self._dispatcher.grant_credits(self._session, min(count, _WANT_MAX))

    async def report(self, report_id: int, rows: Sequence[ReportRow]) -> None:
        """Outcomes, in the order in which they are said."""
        self._refuse_if_ended()
        for row in rows:
            if row.state not in TERMINAL:
                message = f"expected an outcome to be DONE, FAILED or CANCELED, got {row.state}"
                raise InvalidArgumentError(message, reason="OUTCOME_INVALID")
        self._dispatcher.report(self._session, report_id, list(rows))

    async def note(self, notes: Sequence[Note]) -> None:
        """Words of running attempts."""
        self._refuse_if_ended()
        self._dispatcher.note(self._session, list(notes))

    async def extend(self) -> None:
        """A heartbeat."""
        self._refuse_if_ended()
        self._dispatcher.heartbeat(self._session)

    async def release(self, tokens: Collection[int]) -> None:
        """Leases handed back."""
        self._refuse_if_ended()
        self._dispatcher.release(self._session, frozenset(tokens))

    async def drain(self) -> None:
        """No more leases."""
        self._refuse_if_ended()
        self._dispatcher.drain(self._session)

    async def close(self) -> None:
        """Leaves; what is still held goes back, unless the server stops, which takes nothing away."""
        if isinstance(self._ending, _ClosedError):
            return
        self._ending = _ClosedError("the session was closed")
        self._news.set()
        self._on_end(self)
        if not self._is_stopping:
            self._dispatcher.detach(self._session, is_orderly=self._session.is_draining)

    def _push(self, push: Push) -> None:
        self._inbox.append(push)
        self._news.set()

    def _supersede(self) -> None:
        message = "a newer session of this worker id took over; give every worker an id of its own"
        self._ending = self._ending or AbortedError(message, reason="WORKER_SUPERSEDED")
        self._inbox.clear()
        self._news.set()

    def _refuse_if_ended(self) -> None:
        if self._ending is not None:
            raise self._ending

    def _directive(self, inbox: Iterable[Push]) -> Directive:
        leases: list[Assignment] = []
        cancels: list[int] = []
        revoked: list[int] = []
        reported, is_welcome, is_drained, is_drain_asked = 0, False, False, False
        for push in inbox:
            leases += [assignment(lease) for lease in push.leases]
            cancels += push.cancels
            revoked += push.revoked
            reported = max(reported, push.reported)
            is_welcome |= push.is_welcome
            is_drained |= push.is_drained
            is_drain_asked |= push.is_drain_asked
        return Directive(
            leases,
            cancels,
            revoked,
            reported,
            self._terms.lease_ms if is_welcome else 0,
            self._terms.heartbeat_ms if is_welcome else 0,
            is_drained=is_drained,
            is_drain_asked=is_drain_asked,
        )


class _ClosedError(UnavailableError):
    """The worker itself has ended the session."""


def assignment(lease: GrantedLease) -> Assignment:
    """One lease as a worker runs it."""
    template, extra = lease.template, lease.extra or _NO_EXTRA
    return Assignment(
        lease.token,
        lease.job_id,
        template.type,
        lease.payload,
        lease.attempt,
        template.timeout_ms,
        template.simulated,
        extra.work_duration_ms,
        extra.payload_size_bytes,
        dict(extra.labels),
        dict(extra.headers),
        template.queue,
    )


def _hello(introduction: Introduction) -> Hello:
    """An introduction, checked as one from afar is."""
    types, queues = introduction.types, introduction.queues
    for what, names in (("worker_id", [introduction.worker_id]), ("types", types), ("queues", queues)):
        for name in names:
            if not _NAME.fullmatch(name):
                rule = f"1 to {limits.NAME_CHARS_MAX} letters, digits, '.', '_' or '-'"
                raise InvalidArgumentError(f"expected {what} to be {rule}, got {name[:80]!r}", reason="NAME_INVALID")
    if len(types) * max(1, len(queues)) > limits.LANES_MAX:
        raise InvalidArgumentError(
            f"expected types times queues to be at most {limits.LANES_MAX}, got {len(types)} times {len(queues)};"
            " name no queue to serve all of them",
            reason="HELLO_TOO_LARGE",
        )
    return Hello(introduction.worker_id, types, queues, introduction.slots, frozenset(introduction.held))
