"""Sessions of streaming workers: credits in, leases out.

A session is the live connection of one worker. Its credits say how many more jobs it has room for; whenever there are
ready jobs, the dispatcher grants them inside the loop's own turn, so that a job submitted to an idle worker is
accepted and granted in one frame; `matcher` says which session is next. All of this is soft: a crash forgets it, and
workers attach again, naming the leases they hold.

A worker whose connection drops while it holds leases is absent: it keeps them for the reconnect grace, in served time.
The same instance of the worker goes on with them if it attaches within it.

Invariants: one current session per worker id; only the current one's end takes leases back; a lease is pushed only once
it is durable.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence

import msgspec

from holdfast.core import commands
from holdfast.core.commands import GrantedLease, Heard, Refusal, ReportReply, ReportRow
from holdfast.core.events import AnyEvent, CancelAccepted, Reported, Revoked
from holdfast.core.lane_order import Wanted
from holdfast.core.ledger import Ledger
from holdfast.core.lifecycle import RUNNING
from holdfast.core.model import Note, Now
from holdfast.core.progress import ProgressBoard
from holdfast.core.workers import WorkerRegistry
from holdfast.ledger.coordinator import BROKEN, EVENT_STEPS, CommandLane, Coordinator
from holdfast.ledger.group_commit import NO_SPACE
from holdfast.ledger.matcher import Matcher
from holdfast.limits import LEASES_PER_GRANT_MAX, RECONNECT_GRACE_MS

#: One grant to one session, so that a large appetite does not starve its neighbours.
GRANT_MAX = min(256, LEASES_PER_GRANT_MAX)

#: How long something a worker said that found no room waits before it is tried again.
RETRY_MS = 100


class Hello(msgspec.Struct, frozen=True):
    """How a worker introduces itself; `held` are the tokens of leases from before.

    `instance` is the same over all connections of one run of the worker's program, and another one in the next run.
    `is_local` says that the worker dies with the process that serves.
    """

    worker_id: str
    routes: frozenset[str]
    queues: frozenset[str] = frozenset()
    slots: int = 1
    held: frozenset[int] = frozenset()
    instance: str = ""
    is_local: bool = False


class SessionPush(msgspec.Struct, frozen=True):
    """What the coordinator tells a worker.

    `reported` means that every report up to it is durable, `is_drained` that no lease is on its way any more,
    `is_recalled` the same after a recall, `is_drain_asked` that a caller wants this worker to drain and end.
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
        #: Reports that were not acknowledged yet, and whether they are durable.
        self.reports: dict[int, bool] = {}
        self._acknowledged = 0

    def settle(self, report_id: int) -> int:
        """A report is durable: the highest one that is, together with all before it."""
        self.reports[report_id] = True
        for oldest in sorted(self.reports):
            if not self.reports[oldest]:
                break
            del self.reports[oldest]
            self._acknowledged = max(self._acknowledged, oldest)
        return self._acknowledged


class SessionConfig(msgspec.Struct, frozen=True):
    """How long a lease lasts, when a worker counts as silent, and how soon one whose connection dropped must return."""

    lease_ms: int
    worker_timeout_ms: int
    reconnect_grace_ms: int = RECONNECT_GRACE_MS


class SessionDispatcher:
    """Keeps sessions supplied. A follower and an observer of the loop."""

    def __init__(self, coordinator: Coordinator, config: SessionConfig) -> None:
        self._coordinator = coordinator
        self._config = config
        self.registry = WorkerRegistry(config.worker_timeout_ms)
        self.progress = ProgressBoard()
        self._current: dict[str, Session] = {}
        #: Workers that may still come back, each with its last session and when its grace ends, the earliest first.
        self._absent: OrderedDict[str, tuple[Session, int]] = OrderedDict()
        self._matcher: Matcher[Session] = Matcher(coordinator, self)
        self._holders: dict[int, Session] = {}
        self._notices: list[tuple[int, int, bool]] = []
        self._looked_ms = 0
        coordinator.followers.append(self)
        coordinator.observers.append(self)

    # -- what workers do

    def attach(self, session: Session) -> None:
        """A worker connects: leases it still holds go on, those it has lost are handed to others."""
        hello = session.hello
        before = self._current.get(hello.worker_id)
        if before is not None:
            self._matcher.part(before)
            before.supersede()
        else:
            before, _ = self._absent.pop(hello.worker_id, (None, 0))
        if before is not None and before.hello.instance != hello.instance:
            self._coordinator.call(
                CommandLane.WORK, _loss(hello.worker_id), _ignore
            )  # its program has been started anew
        self._current[hello.worker_id] = session
        self._matcher.join(session, Wanted(hello.routes, hello.queues))
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
        """Settles which leases the worker still has; until that found room, it is not welcome."""
        hello = session.hello

        def attached(reply: object) -> None:
            if self._current.get(hello.worker_id) is not session:
                return
            if isinstance(reply, Heard):
                # Since this was decided, some may have been reported or revoked; those would never be removed.
                held = self._coordinator.ledger.book.leases.keys() & reply.held
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
        """The worker's current connection ended: its jobs go back unless it returns within the grace.

        A worker that is leaving does not return: its jobs go back at once. One that was draining lost nothing that it
        was running: what was on its way to it spends no loss.
        """
        self._matcher.part(session)
        worker_id = session.hello.worker_id
        if self._current.get(worker_id) is not session:
            return
        del self._current[worker_id]
        self.registry.forget(worker_id)
        if not self._coordinator.ledger.book.tokens_of.get(worker_id):
            return
        if not is_leaving:
            self._absent[worker_id] = (session, self._served_ms() + self._config.reconnect_grace_ms)
            self._coordinator.wake()
        elif session.is_draining:
            self._coordinator.call(CommandLane.WORK, commands.Revoke(worker_id, "released", is_spent=False), _ignore)
        else:
            self._coordinator.call(CommandLane.WORK, _loss(worker_id), _ignore)

    def grant_credits(self, session: Session, count: int) -> None:
        """The worker has room for this many more."""
        self._hear(session)
        session.credits += count
        self._feed(session)

    def report(self, session: Session, report_id: int, rows: list[ReportRow]) -> None:
        """Outcomes; acknowledged by `report_id` once durable, however many rows were refused.

        An acknowledgement covers all reports before it. The coordinator keeps a report that finds no room on the disk;
        one that it does not take (too many wait) is tried again, as long as the session lives, and holds back those
        after it.
        """
        self._hear(session)
        if session.reports.get(report_id) is False:
            return  # repeated, and still to be acknowledged
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
        """Extends everything that the worker holds."""
        self._hear(session)

        def heard(reply: object) -> None:
            if isinstance(reply, Heard) and (cancels := self.durable_cancels(reply)):
                session.push(SessionPush(cancels=cancels))

        self._coordinator.hear(commands.Extend(session.hello.worker_id, self._config.lease_ms), heard)

    def durable_cancels(self, heard: Heard) -> list[int]:
        """The tokens that a heartbeat's reply may name: those whose cancellation is durable."""
        pending = {token for _, token, is_cancel in self._notices if is_cancel} if heard.cancels else ()
        return [token for token in heard.cancels if token not in pending]

    def note(self, session: Session, notes: Sequence[Note]) -> None:
        """What the worker's attempts say of themselves; where there is no room, nothing but the words is lost."""
        self._hear(session)
        self._coordinator.call(CommandLane.WORK, commands.TakeNotes(session.hello.worker_id, list(notes)), _ignore)

    def release(self, session: Session, tokens: frozenset[int]) -> None:
        """The worker hands leases back unrun; that spends nothing.

        Tried again until it finds room: the worker's heartbeats would keep what it does not run alive for ever.
        """

        def released(reply: object) -> None:
            if isinstance(reply, Refusal) and self._current.get(session.hello.worker_id) is session:
                self._coordinator.later(RETRY_MS, lambda: self.release(session, tokens))

        command = commands.Revoke(session.hello.worker_id, "released", is_spent=False, tokens=tokens)
        self._coordinator.call(CommandLane.WORK, command, released)

    def drain(self, session: Session) -> None:
        """The worker finishes what it has and wants no more; it hears when no lease is on its way any more."""
        session.is_draining = True
        session.credits = 0
        info = self.registry.get(session.hello.worker_id)
        if info:
            info.is_draining = True
        self._matcher.leave(session)
        self._push_in_order(session, SessionPush(is_drained=True))

    def recall(self, session: Session) -> None:
        """The worker takes back what room it has offered; it hears when no lease is on its way any more."""
        self._hear(session)
        session.credits = 0
        self._matcher.leave(session)
        self._push_in_order(session, SessionPush(is_recalled=True))

    def _push_in_order(self, session: Session, push: SessionPush) -> None:
        """After the leases that were granted before."""
        self._coordinator.read(CommandLane.WORK, lambda _ledger, _now: None, lambda _reply: session.push(push))

    # -- what operators do

    def ask_drain(self, worker_id: str) -> bool:
        """Asks a worker to drain and end; whether it is connected. It may leave before it hears."""
        session = self._current.get(worker_id)
        if session is None:
            return False
        self.registry.hear(worker_id, self._served_ms()).is_draining = True
        session.push(SessionPush(is_drain_asked=True))
        return True

    # -- what the loop calls

    @property
    def is_watching(self) -> bool:
        """A worker that waits for jobs may fall silent, or be absent, and that is only noticed as time passes."""
        return bool(self._matcher.is_watching or self._absent)

    def follow(self, now: Now) -> None:
        """Grants ready jobs to sessions that have room, fairly, as far as one turn goes."""
        if now.served_ms - self._looked_ms > self._config.worker_timeout_ms:
            self._looked_ms = now.served_ms
            self.registry.forget_silent(now.served_ms)
        if self._absent:
            self._give_up_absent(now)
        if not self._coordinator.is_ripening:
            self._matcher.match(now)

    def _give_up_absent(self, now: Now) -> None:
        """Takes back what workers held that did not return in time, as far as one turn goes.

        Without room for that, it is tried again.
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
        """Grants up to `count` jobs and says how many; None if the journal has no room."""
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
        return session.hello.worker_id not in self._coordinator.ledger.book.tokens_of

    def is_silent(self, session: Session, now: Now) -> bool:
        """Whether the worker has missed its heartbeats."""
        return self.registry.is_silent(session.hello.worker_id, now.served_ms)

    def _push_leases(self, session: Session, reply: object) -> None:
        if isinstance(reply, list) and reply and self._current.get(session.hello.worker_id) is session:
            session.push(SessionPush(leases=reply))

    def applied(self, position: int, event: AnyEvent, ledger: Ledger) -> None:
        """Notes whose holder must hear of it once it is durable."""
        self.progress.applied(event)
        if type(event) is CancelAccepted and event.state == RUNNING:
            job = ledger.book.jobs[event.job_id]
            self._notices.append((position, job.token, True))
        elif type(event) is Revoked:
            self._notices += [(position, row.token, False) for row in event.rows]
            for row in event.rows:
                self._freed(self._holders.get(row.token))
        elif type(event) is Reported:
            for result in event.results:
                self._freed(self._holders.pop(result.token, None))

    def durable(self, position: int) -> None:
        """Tells holders what is durable now."""
        if not self._notices:
            return
        due = [notice for notice in self._notices if notice[0] <= position]
        self._notices = [notice for notice in self._notices if notice[0] > position]
        for _, token, is_cancel in due:
            session = self._holders.get(token) if is_cancel else self._holders.pop(token, None)
            if session is not None and self._current.get(session.hello.worker_id) is session:
                session.push(SessionPush(cancels=[token]) if is_cancel else SessionPush(revoked=[token]))

    def bug(self, command: object, error: Exception) -> None:
        """Not the dispatcher's concern."""

    # -- room

    def _feed(self, session: Session) -> None:
        is_current = self._current.get(session.hello.worker_id) is session
        if is_current and session.is_attached and session.credits and not session.is_draining:
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
    """All that a lost worker held."""
    return commands.Revoke(worker_id, "disconnected", is_spent=True)


def _ignore(_: object) -> None:
    """Ignores the reply."""
