"""The server's side of one worker's `Work` stream.

`work_service` passes on the worker's messages, and sends the result of `messages` after each wake-up. A session ends
because the worker leaves, the connection is lost, the session is refused (`ending`), or the server stops; in the last
case the worker keeps its leases, reconnects, and names those it still runs.
"""

from collections.abc import Callable, Iterable, Iterator

from holdfast import limits
from holdfast.core.commands import GrantedLease, ReportRow
from holdfast.core.lifecycle import TERMINAL
from holdfast.core.model import Note
from holdfast.errors import AbortedError, HoldfastError, InvalidArgumentError
from holdfast.ledger.sessions import Hello, Session, SessionPush
from holdfast.ledger.work_api import LedgerWork
from holdfast.proto import holdfast_pb2 as pb
from holdfast.server.refusal_log import hidden
from holdfast.server.request_checks import checked_name


class ServedSession:
    """One session. `wake` is called when there is something to send or the session has ended, and must not block."""

    def __init__(self, work: LedgerWork, welcome: pb.Welcome, wake: Callable[[], None]) -> None:
        self._dispatcher = work.dispatcher
        self._welcome = welcome
        self._wake = wake
        self._session: Session | None = None
        self._outbox: list[SessionPush] = []
        self._is_leaving = False
        self.ending: HoldfastError | None = None
        self.is_stopping = False

    def take(self, message: pb.WorkerMessage) -> None:
        """Handles a message of the worker; an invalid one ends the session."""
        if self.ending is not None or self.is_stopping:
            return
        try:
            session = self._session = self._session or self._attach(message)
            self._pass_on(session, message)
        except HoldfastError as error:
            self.end(error)
        except Exception as error:  # noqa: BLE001 - no worker's message may stop the server
            self.end(hidden(error, "Work"))

    def end(self, error: HoldfastError) -> None:
        """Ends the session with an error."""
        self.ending = self.ending or error
        self._wake()

    def stop(self) -> None:
        """Ends the session because the server is stopping; the worker is notified."""
        self.is_stopping = True
        self._wake()

    def leave(self) -> None:
        """Detaches the session unless the server stops: leases return after the reconnect grace, or at a goodbye."""
        if self._session is not None and not self.is_stopping:
            self._dispatcher.detach(self._session, is_leaving=self._is_leaving)
        self._session = None

    def messages(self) -> Iterator[pb.CoordinatorMessage]:
        """Yields the messages to send now, as few as their size limit allows."""
        if self._outbox:
            outbox, self._outbox = self._outbox, []
            yield from self._packed(outbox)
        if self.is_stopping:
            yield pb.CoordinatorMessage(stopping=True)

    def _attach(self, first: pb.WorkerMessage) -> Session:
        session = Session(hello_of(first), self._push, self._supersede)
        self._dispatcher.attach(session)
        return session

    def _push(self, push: SessionPush) -> None:
        self._outbox.append(push)
        self._wake()

    def _supersede(self) -> None:
        message = "a newer session of this worker id took over; give every worker an id of its own"
        self.end(AbortedError(message, reason="WORKER_SUPERSEDED"))

    def _pass_on(self, session: Session, message: pb.WorkerMessage) -> None:
        dispatcher = self._dispatcher
        if message.notes:
            dispatcher.note(session, [note_of(note) for note in message.notes])
        if message.outcomes:
            dispatcher.report(session, message.report_id, [row_of(outcome) for outcome in message.outcomes])
        if message.HasField("heartbeat"):
            dispatcher.heartbeat(session)
        if message.released:
            dispatcher.release(session, frozenset(message.released))
        if message.draining:
            dispatcher.drain(session)
        if message.recalling:
            dispatcher.recall(session)
        self._is_leaving |= message.leaving
        if message.credits:
            dispatcher.grant_credits(session, min(message.credits, limits.LEASES_PER_GRANT_MAX * 10))

    def _packed(self, outbox: Iterable[SessionPush]) -> Iterator[pb.CoordinatorMessage]:
        message, size = pb.CoordinatorMessage(), 0
        for push in outbox:
            if push.is_welcome:
                message.welcome.CopyFrom(self._welcome)
            message.cancels.extend(push.cancels)
            message.revoked.extend(push.revoked)
            message.reported = max(message.reported, push.reported)
            message.drained |= push.is_drained
            message.drain |= push.is_drain_asked
            message.recalled |= push.is_recalled
            for lease in push.leases:
                weight = weight_of(lease)
                size += weight
                if size > limits.BATCH_BYTES_MAX:
                    yield message
                    message, size = pb.CoordinatorMessage(), weight
                add_lease(message, lease)
        yield message


def hello_of(message: pb.WorkerMessage) -> Hello:
    """Checks and converts a worker's introduction."""
    if not message.HasField("hello"):
        raise InvalidArgumentError("the first message of a worker must contain hello", reason="HELLO_MISSING")
    hello = message.hello
    for what, names in (("worker_id", [hello.worker_id]), ("types", hello.types), ("queues", hello.queues)):
        for name in names:
            checked_name(what, name)
    if len(hello.types) * max(1, len(hello.queues)) > limits.LANES_MAX:
        raise InvalidArgumentError(
            f"types times queues must be at most {limits.LANES_MAX},"
            f" got {len(hello.types)} types and {len(hello.queues)} queues; name no queue to serve all of them",
            reason="HELLO_TOO_LARGE",
        )
    held = frozenset(held.token for held in hello.held)
    return Hello(
        hello.worker_id,
        frozenset(hello.types),
        frozenset(hello.queues),
        hello.slots,
        held,
        hello.instance[: limits.NAME_CHARS_MAX],
        hello.dies_with_server,
    )


def note_of(note: pb.Note) -> Note:
    """Converts a note of an attempt."""
    permille = note.permille if note.HasField("permille") else -1
    return Note(note.job_id, note.token, permille, note.message, tuple(note.lines))


def row_of(outcome: pb.Outcome) -> ReportRow:
    """Converts one outcome of a report."""
    if int(outcome.status) not in TERMINAL:
        raise InvalidArgumentError(
            f"an outcome must be DONE, FAILED or CANCELED, got {outcome.status}",
            reason="OUTCOME_INVALID",
        )
    return ReportRow(
        outcome.job_id,
        outcome.token,
        outcome.status,
        outcome.output,
        outcome.summary,
        outcome.failure_reason,
        outcome.runtime_ms,
        outcome.retryable,
        outcome.retry_after_ms,
    )


#: An upper bound for the names, the id and the numbers of a lease.
_LEASE_BYTES = 2_048
#: An upper bound for one character of a label.
_CHAR_BYTES = 4


def weight_of(lease: GrantedLease) -> int:
    """Returns an upper bound for the encoded size of a lease."""
    weight = len(lease.payload) + _LEASE_BYTES
    if lease.extra is not None:
        pairs = (*lease.extra.labels, *lease.extra.headers)
        weight += sum((len(key) + len(value)) * _CHAR_BYTES + _LEASE_BYTES // 64 for key, value in pairs)
    return weight


def add_lease(box: pb.CoordinatorMessage, lease: GrantedLease) -> None:
    """Adds a lease to the message in place; a separate message would be copied."""
    template = lease.template
    # Field by field, and only non-default values: faster than constructor arguments.
    message = box.leases.add()
    message.job_id = lease.job_id
    message.token = lease.token
    message.type = template.type
    message.payload = lease.payload
    message.attempt = lease.attempt
    message.queue = template.queue
    if template.timeout_ms:
        message.timeout_ms = template.timeout_ms
    if template.simulated:
        message.simulated = True
    if lease.retries_left:
        message.retries_left = lease.retries_left
    if lease.extra is not None:
        message.work_duration_ms = lease.extra.work_duration_ms
        message.payload_size_bytes = lease.extra.payload_size_bytes
        message.labels.update(lease.extra.labels)
        message.headers.update(lease.extra.headers)
