"""`WorkApi` over a coordinator in this process, for a worker on an event loop of its own: a session without a network.

Each side stays on its thread: the worker's calls are scheduled on the coordinator's loop, in order, without waiting for
them; the coordinator's messages are collected, and the worker's loop is woken.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Sequence

from holdfast import limits
from holdfast.core.commands import ReportRow
from holdfast.core.lifecycle import TERMINAL
from holdfast.core.model import Note
from holdfast.errors import AbortedError, HoldfastError, InvalidArgumentError, UnavailableError
from holdfast.ledger.session_messages import LeaseTerms, directive_of, hello_of
from holdfast.ledger.sessions import Hello, Session, SessionDispatcher, SessionPush
from holdfast.ports import Directive, Introduction

#: The maximum of credits that one call may add, as over the network.
_WANT_MAX = limits.LEASES_PER_GRANT_MAX * 10
_STOPPED = "the coordinator of this process has stopped"


class LocalWork:
    """Opens sessions with one coordinator, until `close`."""

    def __init__(self, dispatcher: SessionDispatcher, terms: LeaseTerms) -> None:
        """Must be called on the coordinator's loop."""
        self._loop = asyncio.get_running_loop()
        self._dispatcher = dispatcher
        self._terms = terms
        self._sessions: set[LocalSession] = set()
        self._is_closed = False

    async def open(self, introduction: Introduction) -> "LocalSession":
        """Opens a session on the caller's loop."""
        if self._is_closed:
            raise UnavailableError(_STOPPED, reason="STOPPING")
        session = LocalSession(self._loop, self._dispatcher, self._terms, hello_of(introduction, is_local=True))
        session.on_end = self._sessions.discard
        session.tell(self._begin, session)
        return session

    def _begin(self, session: "LocalSession") -> None:
        """Attaches the session; on the coordinator's loop, so that `close` cannot run between check and attach."""
        if self._is_closed:
            session.end(UnavailableError(_STOPPED, reason="STOPPING"))
        else:
            self._sessions.add(session)
            session.attach()

    @property
    def is_used(self) -> bool:
        """Whether there are sessions."""
        return bool(self._sessions)

    def close(self) -> None:
        """Ends every session; workers keep their leases, and name them when they reconnect."""
        self._is_closed = True
        for session in list(self._sessions):
            session.end(UnavailableError(_STOPPED, reason="STOPPING"))


class LocalSession:
    """The session of one worker with the coordinator of its process."""

    def __init__(
        self, home: asyncio.AbstractEventLoop, dispatcher: SessionDispatcher, terms: LeaseTerms, hello: Hello
    ) -> None:
        self._home = home
        self._loop = asyncio.get_running_loop()
        self._dispatcher = dispatcher
        self._terms = terms
        self._session = Session(hello, self._push, self._supersede)
        self._inbox: list[SessionPush] = []
        self._news = asyncio.Event()
        self._ending: HoldfastError | None = None
        self._is_left = False
        self.on_end: Callable[[LocalSession], None] = lambda _: None

    def attach(self) -> None:
        """Attaches to the dispatcher; called on the coordinator's loop."""
        self._dispatcher.attach(self._session)

    async def next(self) -> Directive:
        """Waits for messages, and returns all that have arrived as one directive."""
        while not self._inbox:
            self._refuse_if_ended()
            self._news.clear()
            if not self._inbox and self._ending is None:
                await self._news.wait()
        inbox, self._inbox = self._inbox, []
        return directive_of(inbox, self._terms)

    async def want(self, count: int) -> None:
        """Adds credits."""
        self.tell(self._dispatcher.grant_credits, self._session, min(count, _WANT_MAX))

    async def report(self, report_id: int, rows: Sequence[ReportRow]) -> None:
        """Sends outcomes."""
        for row in rows:
            if row.state not in TERMINAL:
                message = f"an outcome must be DONE, FAILED or CANCELED, got {row.state}"
                raise InvalidArgumentError(message, reason="OUTCOME_INVALID")
        self.tell(self._dispatcher.report, self._session, report_id, list(rows))

    async def note(self, notes: Sequence[Note]) -> None:
        """Sends notes of running attempts."""
        self.tell(self._dispatcher.note, self._session, list(notes))

    async def extend(self) -> None:
        """Sends a heartbeat."""
        self.tell(self._dispatcher.heartbeat, self._session)

    async def release(self, tokens: Collection[int]) -> None:
        """Hands leases back."""
        self.tell(self._dispatcher.release, self._session, frozenset(tokens))

    async def drain(self) -> None:
        """Requests that no more leases are granted."""
        self.tell(self._dispatcher.drain, self._session)

    async def close(self) -> None:
        """Closes the session; leases still held go back at once, unless the coordinator has stopped."""
        if not self._is_left:
            self._is_left = True
            with contextlib.suppress(HoldfastError):
                self.tell(self._leave)
            self._ending = self._ending or UnavailableError("the session was closed")
            self._news.set()

    def end(self, error: HoldfastError) -> None:
        """Ends the session with an error for the worker; called on the coordinator's loop."""
        self.on_end(self)
        self._ending = self._ending or error
        self._awaken()

    def _leave(self) -> None:
        self.on_end(self)
        self._dispatcher.detach(self._session, is_leaving=True)

    def tell(self, function: Callable[..., None], *args: object) -> None:
        """Schedules a call on the coordinator's loop."""
        self._refuse_if_ended()
        try:
            self._home.call_soon_threadsafe(function, *args)
        except RuntimeError:  # the coordinator's loop is closed
            raise UnavailableError(_STOPPED, reason="STOPPING") from None

    def _push(self, push: SessionPush) -> None:
        self._inbox.append(push)
        self._awaken()

    def _supersede(self) -> None:
        message = "a newer session of this worker id took over; give every worker an id of its own"
        self.end(AbortedError(message, reason="WORKER_SUPERSEDED"))

    def _awaken(self) -> None:
        with contextlib.suppress(RuntimeError):  # the worker's loop is closed
            self._loop.call_soon_threadsafe(self._news.set)

    def _refuse_if_ended(self) -> None:
        if self._ending is not None:
            raise self._ending
