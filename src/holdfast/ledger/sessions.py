"""Sessions of streaming workers: credits in, leases out.

A session is the live connection of one worker. Its credits say how many more jobs it has room for. The dispatcher
grants ready jobs within the coordinator's turn, so that a job for an idle worker is accepted and granted in one frame;
`matcher` chooses the session. Sessions are not durable: after a crash, workers attach again and name the leases that
they hold.

A worker whose connection drops while it holds leases is absent: it keeps them for the reconnect grace, in served time.
If the same instance of the worker attaches within the grace, it goes on with them.

Invariants: one current session per worker id; the end of a superseded session revokes no lease; a lease is pushed only
when it is durable.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence

import msgspec

from holdfast.core import commands
from holdfast.core.commands import GrantedLease, Heard, Refusal, ReportReply, ReportRow
from holdfast.core.events import AnyEvent, CancelAccepted, Reported, Revoked
from holdfast.core.lane_order import RouteFilter
from holdfast.core.ledger import Ledger
from holdfast.core.lifecycle import RUNNING
from holdfast.core.model import Note, Now
from holdfast.core.progress import ProgressBoard
from holdfast.core.workers import WorkerRegistry
from holdfast.ledger.coordinator import BROKEN, EVENT_STEPS, CommandLane, Coordinator
from holdfast.ledger.group_commit import NO_SPACE
from holdfast.ledger.matcher import Matcher
from holdfast.limits import LEASES_PER_GRANT_MAX, RECONNECT_GRACE_MS

#: The largest grant to one session, so that a session with many credits does not starve the others.
GRANT_MAX = min(256, LEASES_PER_GRANT_MAX)

#: The delay before a worker's message is tried again, after the coordinator refused it.
RETRY_MS = 100


class Hello(msgspec.Struct, frozen=True):
    """The introduction of a worker; `held` are the tokens of leases from earlier sessions.

    `instance` identifies one run of the worker's program, over all its connections. `is_local` means that the worker
    ends with the serving process.
    """

    worker_id: str
    routes: frozenset[str]
    queues: frozenset[str] = frozenset()
    slots: int = 1
    held: frozenset[int] = frozenset()
    instance: str = ""
    is_local: bool = False


class SessionPush(msgspec.Struct, frozen=True):
    """A message of the coordinator to a worker.

    `reported` means that every report up to it is durable, `is_drained` that no lease is in flight any more,
    `is_recalled` the same after a recall, `is_drain_asked` that an operator requests the worker to drain and exit.
    """

    is_welcome: bool = False
    is_drained: bool = False
    leases: list[GrantedLease] = []
    cancels: list[int] = []
    revoked: list[int] = []
    reported: int = 0
    refused: list[str] = []
    is_drain_asked: bool = False
    is_recalled: bool = False


class Session:
    """One worker's connection. `push` must not block; `supersede` ends the connection from our side."""

    __slots__ = (
        "_acknowledged",
        "credits",
        "hello",
        "is_attached",
        "is_draining",
        "is_paused",
        "is_recalled",
        "push",
        "reports",
        "supersede",
    )

    def __init__(self, hello: Hello, push: Callable[[SessionPush], None], supersede: Callable[[], None]) -> None:
        self.hello = hello
        self.push = push
        self.supersede = supersede
        self.credits = 0
        self.is_attached = False
        self.is_draining = False
        #: Whether the session is granted nothing, because its worker does not read.
        self.is_paused = False
        #: Whether the worker has withdrawn its credits and offered no new ones.
        self.is_recalled = False
        #: Reports that were not acknowledged yet, and whether they are durable.
        self.reports: dict[int, bool] = {}
        self._acknowledged = 0

    def settle(self, report_id: int) -> int:
        """Records that a report is durable; returns the highest id up to which all reports are durable."""
        self.reports[report_id] = True
        for oldest in sorted(self.reports):
            if not self.reports[oldest]:
                break
            del self.reports[oldest]
            self._acknowledged = max(self._acknowledged, oldest)
        return self._acknowledged


class SessionConfig(msgspec.Struct, frozen=True):
    """Lease length, the time after which a worker counts as silent, and the grace for its reconnect."""

    lease_ms: int
    worker_timeout_ms: int
    reconnect_grace_ms: int = RECONNECT_GRACE_MS


class SessionDispatcher:
    """Grants jobs to sessions. A follower and an observer of the coordinator."""

    def __init__(self, coordinator: Coordinator, config: SessionConfig) -> None:
        self._coordinator = coordinator
        self._config = config
        self.registry = WorkerRegistry(config.worker_timeout_ms)
        self.progress = ProgressBoard()
        self._current: dict[str, Session] = {}
        #: Absent workers, each with its last session and the end of its grace; the earliest end comes first.
        self._absent: OrderedDict[str, tuple[Session, int]] = OrderedDict()
        self._matcher: Matcher[Session] = Matcher(coordinator, self)
        self._holders: dict[int, Session] = {}
        self._notices: list[tuple[int, int, bool]] = []
        self._looked_ms = 0
        coordinator.followers.append(self)
        coordinator.observers.append(self)

    # -- messages of workers

    def attach(self, session: Session) -> None:
        """Starts a worker's session: leases that it names are extended, its other leases are revoked."""
        hello = session.hello
        before = self._current.get(hello.worker_id)
        if before is not None:
            self._matcher.part(before)
            before.supersede()
        else:
            before, _ = self._absent.pop(hello.worker_id, (None, 0))
        if before is not None and before.hello.instance != hello.instance:
            self._coordinator.call(CommandLane.WORK, _loss(hello.worker_id), _ignore)  # its program was restarted
        self._current[hello.worker_id] = session
        self._matcher.join(session, RouteFilter(hello.routes, hello.queues))
        info = self.registry.hear(hello.worker_id, self._served_ms())
        info.routes, info.queues, info.slots, info.is_streaming = (
            hello.routes,
            hello.queues,
            hello.slots,
            True,
        )
        info.is_draining = False
        self._claim(session)

    def _claim(self, session: Session) -> None:
        """Decides which leases the worker keeps, and then welcomes it; a refusal is tried again."""
        hello = session.hello

        def attached(reply: object) -> None:
            if self._current.get(hello.worker_id) is not session:
                return
            if isinstance(reply, Heard):
                # Leases that have ended since the decision are left out; they would stay in `_holders` forever.
                held = self._coordinator.ledger.state.leases.keys() & reply.held
                self._holders.update(dict.fromkeys(held, session))
                session.is_attached = True
                session.push(
                    SessionPush(
                        is_welcome=True,
                        revoked=sorted(hello.held.difference(held)),
                        cancels=reply.cancels,
                    )
                )
                self._feed(session)
            else:
                self._coordinator.later(RETRY_MS, lambda: self._claim(session))

        command = commands.Extend(hello.worker_id, self._config.lease_ms, hello.held)
        self._coordinator.call(CommandLane.WORK, command, attached)

    def detach(self, session: Session, *, is_leaving: bool = False) -> None:
        """Ends a session: the worker's jobs go back to their queues unless it returns within the grace.

        A worker that is leaving does not return: its jobs go back at once. If it was draining, it ran none of them:
        they were in flight to it, and spend no loss.
        """
        self._matcher.part(session)
        worker_id = session.hello.worker_id
        if self._current.get(worker_id) is not session:
            return
        del self._current[worker_id]
        self.registry.forget(worker_id)
        if not self._coordinator.ledger.state.tokens_of.get(worker_id):
            return
        if not is_leaving:
            self._absent[worker_id] = (session, self._served_ms() + self._config.reconnect_grace_ms)
            self._coordinator.wake()
        elif session.is_draining:
            self._coordinator.call(CommandLane.WORK, commands.Revoke(worker_id, "released", is_spent=False), _ignore)
        else:
            self._coordinator.call(CommandLane.WORK, _loss(worker_id), _ignore)

    def grant_credits(self, session: Session, count: int) -> None:
        """Adds credits: the worker has room for this many more jobs."""
        self._hear(session)
        session.credits += count
        session.is_recalled = False
        self._feed(session)

    def return_credits(self, session: Session, count: int) -> None:
        """Gives back the credits of leases that ended before they were sent: their slots are still free.

        Not after a drain or a recall, which withdrew these credits as well. The worker sent nothing, so that a silent
        one stays silent.
        """
        if not session.is_draining and not session.is_recalled:
            session.credits += count
            self._feed(session)

    def report(self, session: Session, report_id: int, rows: list[ReportRow]) -> None:
        """Records outcomes; acknowledges `report_id` when they are durable, even if rows were refused.

        An acknowledgement covers all reports before it. The coordinator keeps a report that finds no disk space. A
        report that it refuses (too many wait) is tried again while the session is current; until it is recorded, no
        later report is acknowledged.
        """
        self._hear(session)
        if session.reports.get(report_id) is False:
            return  # repeated, while the first one is pending
        session.reports[report_id] = False
        self._report(session, report_id, rows)

    def _report(self, session: Session, report_id: int, rows: list[ReportRow]) -> None:
        def reported(reply: object) -> None:
            if isinstance(reply, ReportReply):
                refused = [reason for reason in reply.refused if reason]
                session.push(SessionPush(reported=session.settle(report_id), refused=refused))
            elif reply is not BROKEN and self._current.get(session.hello.worker_id) is session:
                self._coordinator.later(RETRY_MS, lambda: self._report(session, report_id, rows))

        self._coordinator.call(CommandLane.WORK, commands.Report(session.hello.worker_id, rows), reported)

    def heartbeat(self, session: Session) -> None:
        """Extends all leases of the worker."""
        self._hear(session)

        def heard(reply: object) -> None:
            if isinstance(reply, Heard) and (cancels := self.durable_cancels(reply)):
                session.push(SessionPush(cancels=cancels))

        self._coordinator.hear(commands.Extend(session.hello.worker_id, self._config.lease_ms), heard)

    def durable_cancels(self, heard: Heard) -> list[int]:
        """Returns the tokens of a heartbeat's reply whose cancellation is durable."""
        pending = {token for _, token, is_cancel in self._notices if is_cancel} if heard.cancels else ()
        return [token for token in heard.cancels if token not in pending]

    def note(self, session: Session, notes: Sequence[Note]) -> None:
        """Records notes of the worker's attempts; if the coordinator refuses them, only the notes are lost."""
        self._hear(session)
        self._coordinator.call(CommandLane.WORK, commands.TakeNotes(session.hello.worker_id, list(notes)), _ignore)

    def release(self, session: Session, tokens: frozenset[int]) -> None:
        """Takes back leases that the worker returns; spends no loss.

        A refusal is tried again: otherwise the worker's heartbeats would extend these leases forever.
        """

        def released(reply: object) -> None:
            if isinstance(reply, Refusal) and self._current.get(session.hello.worker_id) is session:
                self._coordinator.later(RETRY_MS, lambda: self.release(session, tokens))

        command = commands.Revoke(session.hello.worker_id, "released", is_spent=False, tokens=tokens)
        self._coordinator.call(CommandLane.WORK, command, released)

    def drain(self, session: Session) -> None:
        """Grants the session no more jobs; sends `is_drained` after the last lease in flight."""
        session.is_draining = True
        session.credits = 0
        info = self.registry.get(session.hello.worker_id)
        if info:
            info.is_draining = True
        self._matcher.leave(session)
        self._push_in_order(session, SessionPush(is_drained=True))

    def recall(self, session: Session) -> None:
        """Withdraws the session's credits; sends `is_recalled` after the last lease in flight."""
        self._hear(session)
        session.credits = 0
        session.is_recalled = True
        self._matcher.leave(session)
        self._push_in_order(session, SessionPush(is_recalled=True))

    def pause(self, session: Session) -> None:
        """Grants the session no more jobs until `resume`; it keeps its credits."""
        session.is_paused = True
        self._matcher.leave(session)

    def resume(self, session: Session) -> None:
        """Grants the session jobs again."""
        session.is_paused = False
        self._feed(session)

    def _push_in_order(self, session: Session, push: SessionPush) -> None:
        """Sends a message after the leases that were granted before."""
        self._coordinator.read(CommandLane.WORK, lambda _ledger, _now: None, lambda _reply: session.push(push))

    # -- requests of operators

    def ask_drain(self, worker_id: str) -> bool:
        """Requests a worker to drain and exit; False if it is not connected. It may end before the request arrives."""
        session = self._current.get(worker_id)
        if session is None:
            return False
        self.registry.hear(worker_id, self._served_ms()).is_draining = True
        session.push(SessionPush(is_drain_asked=True))
        return True

    # -- calls of the coordinator

    @property
    def is_watching(self) -> bool:
        """Whether workers wait for jobs or are absent: silence and the end of a grace are noticed by time only."""
        return bool(self._matcher.is_watching or self._absent)

    def follow(self, now: Now) -> None:
        """Grants ready jobs to sessions with credits, fairly, within the steps of one turn."""
        if now.served_ms - self._looked_ms > self._config.worker_timeout_ms:
            self._looked_ms = now.served_ms
            self.registry.forget_silent(now.served_ms)
        if self._absent:
            self._give_up_absent(now)
        if not self._coordinator.is_ripening:
            self._matcher.match(now)

    def _give_up_absent(self, now: Now) -> None:
        """Revokes the leases of workers that did not return in time, within the steps of one turn.

        Without journal space, a later turn tries again.
        """
        steps = self._coordinator.turn_steps // 2
        while self._absent:
            worker_id, (_, until_ms) = next(iter(self._absent.items()))
            if until_ms > now.served_ms:
                return
            if steps <= 0:
                self._coordinator.wake()
                return
            taken = self._coordinator.execute(_loss(worker_id), now)
            if taken is NO_SPACE:
                return
            del self._absent[worker_id]
            steps -= EVENT_STEPS + (len(taken) if isinstance(taken, list) else 0)

    def grant(self, session: Session, count: int, now: Now) -> int | None:
        """Grants up to `count` jobs and returns their number; None if the journal has no space."""
        hello = session.hello
        count = min(session.credits, count, GRANT_MAX)
        lease_ms = self._config.lease_ms
        command = commands.GrantLeases(hello.worker_id, hello.routes, hello.queues, count, lease_ms, hello.is_local)
        granted = self._coordinator.execute(command, now, lambda reply: self._push_leases(session, reply))
        if not isinstance(granted, list):
            return None
        session.credits -= len(granted)
        for lease in granted:
            self._holders[lease.token] = session
        if not session.credits:
            self._matcher.leave(session)
        return len(granted)

    def is_free(self, session: Session) -> bool:
        """Whether the worker holds no lease."""
        return session.hello.worker_id not in self._coordinator.ledger.state.tokens_of

    def is_silent(self, session: Session, now: Now) -> bool:
        """Whether the worker has missed its heartbeats."""
        return self.registry.is_silent(session.hello.worker_id, now.served_ms)

    def _push_leases(self, session: Session, reply: object) -> None:
        if isinstance(reply, list) and reply and self._current.get(session.hello.worker_id) is session:
            session.push(SessionPush(leases=reply))

    def applied(self, position: int, event: AnyEvent, ledger: Ledger) -> None:
        """Records the workers to notify of the event when it is durable."""
        self.progress.applied(event)
        if type(event) is CancelAccepted and event.state == RUNNING:
            job = ledger.state.jobs[event.job_id]
            self._notices.append((position, job.token, True))
        elif type(event) is Revoked:
            self._notices += [(position, row.token, False) for row in event.rows]
            for row in event.rows:
                self._freed(self._holders.get(row.token))
        elif type(event) is Reported:
            for result in event.results:
                self._freed(self._holders.pop(result.token, None))

    def durable(self, position: int) -> None:
        """Notifies workers of their cancellations and revocations that are durable now."""
        if not self._notices:
            return
        due = [notice for notice in self._notices if notice[0] <= position]
        self._notices = [notice for notice in self._notices if notice[0] > position]
        for _, token, is_cancel in due:
            session = self._holders.get(token) if is_cancel else self._holders.pop(token, None)
            if session is not None and self._current.get(session.hello.worker_id) is session:
                session.push(SessionPush(cancels=[token]) if is_cancel else SessionPush(revoked=[token]))

    def bug(self, command: object, error: Exception) -> None:
        """Does nothing: the dispatcher does not handle bugs."""

    # -- credits

    def _feed(self, session: Session) -> None:
        is_current = self._current.get(session.hello.worker_id) is session
        is_fed = session.is_attached and not session.is_draining and not session.is_paused
        if is_current and is_fed and session.credits:
            self._matcher.feed(session)
            self._coordinator.wake()

    def _freed(self, session: Session | None) -> None:
        if session is not None:
            self._matcher.freed(session)

    def _hear(self, session: Session) -> None:
        if self._current.get(session.hello.worker_id) is session:
            self.registry.hear(session.hello.worker_id, self._served_ms())
            self._matcher.heard(session)

    def _served_ms(self) -> int:
        return self._coordinator.time.served_ms()


def _loss(worker_id: str) -> commands.Revoke:
    """Returns the command that revokes all leases of a lost worker."""
    return commands.Revoke(worker_id, "disconnected", is_spent=True)


def _ignore(_: object) -> None:
    """Ignores the reply."""
