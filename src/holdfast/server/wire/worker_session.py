"""The server's side of one worker's session on the wire.

A session ends because the worker leaves, the connection is lost, the session is refused, or the server stops. In the
last case the worker keeps its leases, reconnects, and names those it still holds.

Invariant: the memory for a worker that does not read is limited. Messages are encoded only while it reads, it is
granted no more jobs until it reads again, and a lease that ends meanwhile is not kept. The worker never hears of such a
lease, so its credit goes back to the session.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Collection
from typing import Protocol

from msgspec.structs import replace

from holdfast import limits
from holdfast.core.commands import GrantedLease, ReportRow
from holdfast.core.lifecycle import TERMINAL
from holdfast.errors import AbortedError, HoldfastError, InvalidArgumentError
from holdfast.ledger.session_messages import LeaseTerms, directive_of, hello_of
from holdfast.ledger.sessions import Session, SessionPush
from holdfast.ledger.work_api import LedgerWork
from holdfast.ports import Directive
from holdfast.server.refusal_log import hidden, log_refusal
from holdfast.wire.messages import ERROR, LAST, WireFailure, WorkerMessage, decode_worker_message, encode

#: The maximum of credits of a session: several times as many as a worker has slots and backlog.
_CREDITS_MAX = limits.LEASES_PER_GRANT_MAX * 10
#: So few leases are sent at once: a lone job should not wait. Others wait for the end of the loop's iteration.
_AT_ONCE_LEASES = 2
_NOTHING = SessionPush()
_UINT32_MAX, _INT64_MAX = (1 << 32) - 1, (1 << 63) - 1


class WorkerLine(Protocol):
    """The connection of the worker."""

    @property
    def is_open(self) -> bool:
        """Whether messages can still be sent."""
        ...

    @property
    def is_writable(self) -> bool:
        """Whether the worker reads its messages."""
        ...

    async def writable(self) -> None:
        """Waits until the worker reads its messages, or the connection has ended."""
        ...

    def send(self, message: bytes) -> None:
        """Sends a message, or buffers it; never blocks."""
        ...

    def close(self) -> None:
        """Closes the connection after all messages were sent."""
        ...


class ServedWorker:
    """One session. `terms` are the lease and heartbeat intervals, which the first message tells the worker."""

    def __init__(self, work: LedgerWork, terms: LeaseTerms, line: WorkerLine, peer: str) -> None:
        self._dispatcher = work.dispatcher
        self._terms = terms
        self._line = line
        self._peer = peer
        self._loop = asyncio.get_running_loop()
        self._session: Session | None = None
        #: Leases to send, by token, and everything else to send.
        self._leases: OrderedDict[int, GrantedLease] = OrderedDict()
        self._notices: list[SessionPush] = []
        #: Waits until the worker reads; None while it does.
        self._waiting: asyncio.Task[None] | None = None
        self._is_due = False
        self._is_leaving = self._is_stopping = False
        self._ending: HoldfastError | None = None

    def take(self, message: bytes) -> None:
        """Handles a message of the worker; an invalid one ends the session."""
        decoded = decode_worker_message(message)
        if self._ending is not None or self._is_stopping:
            return
        try:
            session = self._session = self._session or self._attached(decoded)
            self._pass_on(session, decoded)
        except HoldfastError as error:
            self.end(error)
        except Exception as error:  # noqa: BLE001 - no worker's message may stop the server
            self.end(hidden(error, "work"))

    def end(self, error: HoldfastError) -> None:
        """Ends the session with an error."""
        self._ending = self._ending or error
        self._wake()

    def stop(self) -> None:
        """Ends the session because the server is stopping; the worker is notified."""
        self._is_stopping = True
        self._wake()

    def close(self) -> None:
        """Detaches the session unless the server stops: leases return after the reconnect grace, or at a goodbye."""
        if self._session is not None and not self._is_stopping:
            self._dispatcher.detach(self._session, is_leaving=self._is_leaving)
        self._session = None
        if self._waiting is not None:
            self._waiting.cancel()

    def _attached(self, first: WorkerMessage) -> Session:
        if first.introduction is None:
            raise InvalidArgumentError("the first message of a worker must introduce it", reason="HELLO_MISSING")
        if first.introduction.slots > limits.SLOTS_MAX:
            message = f"slots must be at most {limits.SLOTS_MAX}, got {first.introduction.slots}; start more workers"
            raise InvalidArgumentError(message, reason="HELLO_TOO_LARGE")
        session = Session(hello_of(first.introduction), self._push, self._supersede)
        self._dispatcher.attach(session)
        return session

    def _push(self, push: SessionPush) -> None:
        if push.revoked:
            unsent = self._leases.keys() & push.revoked
            if unsent:
                self._drop_leases(unsent)
                push = replace(push, revoked=[token for token in push.revoked if token not in unsent])
                if push == _NOTHING:
                    return
        for lease in push.leases:
            self._leases[lease.token] = lease
        # A worker may send many heartbeats before it reads, and gets the same cancels for each.
        if not push.leases and not (self._notices and self._notices[-1] == push):
            self._notices.append(push)
        if not self._is_due and 0 < len(push.leases) <= _AT_ONCE_LEASES:
            self._write()
        else:
            self._wake()

    def _drop_leases(self, tokens: Collection[int]) -> None:
        """Drops leases that ended before they were sent, and returns their credits."""
        for token in tokens:
            del self._leases[token]
        session = self._session
        if session is not None:
            self._dispatcher.return_credits(session, min(len(tokens), _CREDITS_MAX - session.credits))

    def _supersede(self) -> None:
        message = "a newer session of this worker id took over; give every worker an id of its own"
        self.end(AbortedError(message, reason="WORKER_SUPERSEDED"))

    def _pass_on(self, session: Session, message: WorkerMessage) -> None:
        dispatcher = self._dispatcher
        if message.notes:
            dispatcher.note(session, message.notes)
        if message.outcomes:
            for row in message.outcomes:
                _check(row)
            dispatcher.report(session, message.report_id, message.outcomes)
        if message.is_heartbeat:
            dispatcher.heartbeat(session)
        if message.released:
            dispatcher.release(session, frozenset(message.released))
        if message.is_draining:
            dispatcher.drain(session)
        if message.is_recalling:
            dispatcher.recall(session)
        if message.credits > 0:
            dispatcher.grant_credits(session, min(message.credits, _CREDITS_MAX - session.credits))
        if message.is_leaving:
            self._is_leaving = True
            self._line.close()  # over TLS, a worker cannot close its own direction alone

    # -- messages to the worker

    def _wake(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._write)

    def _write(self) -> None:
        self._is_due = False
        line, error = self._line, self._ending
        if not line.is_open:
            return
        if error is not None:
            log_refusal(error, "work", self._peer)
            line.send(encode((ERROR, WireFailure.of(error))))
            line.close()
            return
        while (self._leases or self._notices) and line.is_writable:
            line.send(encode((LAST, self._next_directive())))
        if self._is_stopping:
            line.send(encode((LAST, Directive(is_stopping=True))))
            line.close()
        elif self._waiting is None and self._session is not None and not line.is_writable:
            self._dispatcher.pause(self._session)
            self._waiting = self._loop.create_task(self._wait_for_reader(self._session))

    async def _wait_for_reader(self, session: Session) -> None:
        await self._line.writable()
        self._waiting = None
        self._dispatcher.resume(session)
        self._write()

    def _next_directive(self) -> Directive:
        """Returns the next message; its size is limited."""
        leases = self._next_leases()
        notices, self._notices = self._notices, []
        if self._leases:  # these announce that no lease follows
            self._notices = [notice for notice in notices if notice.is_drained or notice.is_recalled]
            notices = [notice for notice in notices if not (notice.is_drained or notice.is_recalled)]
        return directive_of([*notices, SessionPush(leases=leases)], self._terms)

    def _next_leases(self) -> list[GrantedLease]:
        leases, size = list[GrantedLease](), 0
        while self._leases:
            token, lease = self._leases.popitem(last=False)
            size += _weight(lease)
            if leases and size > limits.BATCH_BYTES_MAX:
                self._leases[token] = lease
                self._leases.move_to_end(token, last=False)
                break
            leases.append(lease)
        return leases


#: An upper bound for the names, the id and the numbers of a lease, and for one character of a label.
_LEASE_BYTES, _CHAR_BYTES = 2_048, 4


def _weight(lease: GrantedLease) -> int:
    """Returns an upper bound for the encoded size of a lease."""
    weight = len(lease.payload) + _LEASE_BYTES
    if lease.extra is not None:
        for pairs in (lease.extra.labels, lease.extra.headers):
            weight += sum((len(key) + len(value)) * _CHAR_BYTES + _LEASE_BYTES // 64 for key, value in pairs)
    return weight


def _check(row: ReportRow) -> None:
    """Refuses an outcome whose numbers no worker reports."""
    if row.state not in TERMINAL:
        raise InvalidArgumentError(
            f"an outcome must be DONE, FAILED or CANCELED, got {row.state}", reason="OUTCOME_INVALID"
        )
    if not (0 <= row.runtime_ms <= _UINT32_MAX and 0 <= row.retry_after_ms <= _INT64_MAX and row.token >= 0):
        raise InvalidArgumentError(
            "the times and the token of an outcome must not be negative", reason="OUTCOME_INVALID"
        )
