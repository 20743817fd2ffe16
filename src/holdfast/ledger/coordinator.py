"""The coordinator's loop: commands wait in lanes, and each turn decides some of them.

A command goes through decide → encode → reserve → apply. Deciding changes nothing, so a command whose event finds no
space in the journal is refused without any effect, and may be retried. A report that finds no space waits here, and
its leases are kept (see `journal_room` and `pending_reports`). An applied event is in the open frame; its reply is sent
when the frame is durable (see `group_commit`). While a frame is synced, the coordinator decides more commands.

Lanes: commands of workers precede submits, and submits precede lists, so that neither a flood of submits nor a scan of
all jobs lets a lease expire. Leases that are due expire before any lane is served: a late worker gets a refusal.
"""

from collections import deque
from collections.abc import Callable
from enum import IntEnum
from typing import Protocol

import msgspec

from holdfast import limits
from holdfast.core import commands, events, retention
from holdfast.core.commands import AnyCommand, Decision, Refusal
from holdfast.core.events import AnyEvent
from holdfast.core.ledger import Ledger
from holdfast.core.model import Now
from holdfast.errors import Code
from holdfast.journal.errors import LeadershipLostError
from holdfast.journal.port import FRAME_OVERHEAD
from holdfast.ledger import journal_room
from holdfast.ledger.command_clock import STALL_MS, CommandClock
from holdfast.ledger.group_commit import NO_SPACE, CommitConfig, Done, GroupCommit
from holdfast.ledger.log_clock import ClockMark, ClockTrust
from holdfast.ledger.memory_limit import MemoryWatch
from holdfast.ledger.pending_reports import WaitingReports
from holdfast.ledger.ports import Clock, Scheduler, Storage, SyncThread, Timer

Read = Callable[[Ledger, Now], object]

STOPPING = Refusal(Code.UNAVAILABLE, "STOPPING", "the server is stopping; try another server, or try again later")
OVERLOADED = Refusal(Code.RESOURCE_EXHAUSTED, "OVERLOADED", "too many requests are waiting; try again later")
NOT_LEADER = Refusal(Code.UNAVAILABLE, "NOT_LEADER", "this server does not lead the shard; ask the one that does")
OUTCOME_UNKNOWN = Refusal(
    Code.DEADLINE_EXCEEDED,
    "OUTCOME_UNKNOWN",
    "this server lost the lead before the request was durable; it may have taken effect or not",
)
BROKEN = Refusal(Code.INTERNAL, "INTERNAL", "the request failed with an internal error; see the server's log")

#: The exact size that a frame adds to its events, because bytes that are reserved and not used are lost.
FRAME_BYTES = FRAME_OVERHEAD + events.JOIN_BYTES
#: Commands that create jobs.
_NEW_JOBS = frozenset({commands.Submit, commands.TriggerSchedule, commands.Tick})
#: The cost of an event without its jobs, in steps of a turn.
EVENT_STEPS = 7
#: Longer than any wait: nothing is due.
_NEVER_MS = 1 << 62
#: The longest delay of a timer, because the wall clock may jump meanwhile.
RECHECK_MS = 60_000


class CommandLane(IntEnum):
    """The lanes of waiting commands, most urgent first."""

    WORK = 0
    SUBMIT = 1
    LIST = 2


class LoopConfig(CommitConfig, frozen=True):
    """Sizes and intervals of the loop."""

    #: The open frame takes no more commands at this size, so that outputs that pile up behind a slow sync stay below
    #: the maximum size of a frame.
    work_frame_bytes: int = 64 << 20
    #: Space that submits leave for grants, cancels and other commands that continue when the disk fills up.
    spare_bytes: int = 4 << 20
    #: Space that is kept for the end of each lease.
    outcome_bytes: int = limits.OUTCOME_BYTES
    #: Maximum size of the reports that wait for space here; further reports wait at their workers.
    waiting_reports_bytes: int = 64 << 20
    #: Maximum number of waiting commands per lane; further ones are refused.
    waiting_max: int = 20_000
    #: Limit of the work in one turn, each for workers, clients and dispatch, so that the thread returns to its sockets.
    #: A step is about the cost of one more job in an event: some microseconds.
    turn_steps: int = 2_000
    #: From this number of waiting jobs (not commands) on, commands are decided while a frame is synced.
    overlap_jobs: int = 64
    #: Interval between turns while leases are active or workers wait; well below `STALL_MS`.
    tick_ms: int = STALL_MS // 2
    retain_ms: int = 86_400_000
    retain_jobs: int = 1_000_000
    retain_bytes: int = 512 << 20
    retain_failed_ms: int = limits.RETAIN_FAILED_MS_DEFAULT
    trust: ClockTrust = ClockTrust()


class Observer(Protocol):
    """Receives the coordinator's notifications, on its thread. Methods must be quick and must not raise."""

    def applied(self, position: int, event: AnyEvent, ledger: Ledger) -> None:
        """Called when an event became part of the state; it is not durable yet."""
        ...

    def durable(self, position: int) -> None:
        """Called when all events up to this position are durable."""
        ...

    def bug(self, command: object, error: Exception) -> None:
        """Called when deciding a command raised an exception, which is a bug."""
        ...


class Follower(Protocol):
    """Acts on new state within the same turn, before the frame is closed; for example the dispatcher."""

    @property
    def is_watching(self) -> bool:
        """Whether a turn is needed every `tick_ms` even if nothing is due."""
        ...

    def follow(self, now: Now) -> None:
        """Called after commands were decided and when time has passed."""
        ...


class CoordinatorPorts(msgspec.Struct, frozen=True):
    """The coordinator's ports. It calls `fatal` when the journal has failed; that must stop the process at once."""

    clock: Clock
    scheduler: Scheduler
    sync: SyncThread
    fatal: Callable[[BaseException], None]
    #: The mark of the previous process, if it left one (see `log_clock`).
    previous: ClockMark | None = None
    #: Returns the resident size of this process; 0 if the system does not report it.
    resident_bytes: Callable[[], int] = lambda: 0


class Coordinator:
    """Owns the ledger. Every method is called on one thread."""

    def __init__(self, ledger: Ledger, storage: Storage, ports: CoordinatorPorts, config: LoopConfig) -> None:
        self.ledger = ledger
        self._storage = storage
        self._ports = ports
        self._config = config
        self._retention = commands.Evict(
            config.retain_ms, config.retain_jobs, config.retain_bytes, config.retain_failed_ms
        )
        self._expiry = commands.Expire(max(1, config.turn_steps // 2))
        self.time = CommandClock(ports.clock, ledger.state.last_ms, previous=ports.previous, trust=config.trust)
        #: Commands of the start that are not recorded yet; they wait for journal space.
        self._starting: deque[AnyCommand] = deque()
        self.memory = MemoryWatch(ledger, ports.resident_bytes, ports.clock)
        self._lanes: tuple[deque[tuple[AnyCommand | Read, Done]], ...] = tuple(deque() for _ in CommandLane)
        self.commit = GroupCommit(storage, ports.sync, ports.scheduler, self, config)
        self._reports = WaitingReports(config.waiting_reports_bytes)
        self._reports_due_ms = 0
        #: Whether a grant found no space in this turn; no others are tried then.
        self._is_grant_refused = False
        #: Whether some due delayed jobs are not in their lanes yet: a grant now might skip jobs that come first.
        self.is_ripening = False
        #: Whether there is space for the ends of the leases that existed at the start.
        self._is_room_kept = False
        self._is_turn_due = False
        #: True within a turn: a frame whose sync ends in it must not begin another turn.
        self._is_busy = False
        self._backlog = 0
        self._is_starved = False
        self._state = "new"
        #: The reply to every request while nothing is served.
        self._closed = STOPPING
        self._timer: Timer | None = None
        self._timer_due_ms = 0
        self._on_stopped: Callable[[], None] | None = None
        self.observers: list[Observer] = []
        self.followers: list[Follower] = []
        #: Returns the refusal of a command whose event may not be written, because another process cannot read it.
        self.unwritable: Callable[[AnyEvent], Refusal | None] | None = None

    # -- start and stop

    def start(self, process: str = "", is_gone: Callable[[str], bool] = lambda _: True) -> None:
        """Starts to serve after the replay: leases run again, and commands are accepted.

        `process` identifies this process. Workers that ended with an earlier process for which `is_gone` holds lose
        their leases at once; all other leases are renewed.
        """
        assert self._state == "new"
        assert self.ledger.position == self.commit.synced, "serve exactly what is durable"
        self._state = "serving"
        now = self.time.now()
        self.ledger.leases.resume(now)
        orphans: dict[tuple[str, str], set[int]] = {}
        for lease in self.ledger.state.leases.values():
            if lease.host:
                orphans.setdefault((lease.host, lease.worker), set()).add(lease.token)
        self._starting.extend(
            commands.Revoke(worker, "disconnected", is_spent=True, tokens=frozenset(tokens))
            for (host, worker), tokens in orphans.items()
            if is_gone(host)
        )
        self._starting.append(commands.Start(self._storage.epoch, process))
        # Before anything is served, so that no turn waits until the journal has the space that the first submit leaves.
        self.commit.reserve(0, spare=self._config.spare_bytes)
        self._keep_room()
        self._begin(now)
        self.wake()

    def _begin(self, now: Now) -> None:
        while self._starting and self.execute(self._starting[0], now) is not NO_SPACE:
            self._starting.popleft()

    def stop(self, done: Callable[[], None]) -> None:
        """Refuses waiting commands, makes the open frame durable, then calls `done`. Leases stay."""
        if self._state in ("stopped", "failed"):
            done()
            return
        if self._state == "serving":
            self._state = "stopping"
        self._on_stopped = done
        for lane in self._lanes:
            while lane:
                lane.popleft()[1](STOPPING)
        for waiting in self._reports.clear():
            waiting(STOPPING)
        if self._timer:
            self._timer.cancel()
        self._flush()

    @property
    def is_serving(self) -> bool:
        """Whether commands are accepted."""
        return self._state == "serving"

    @property
    def log_ms(self) -> int:
        """The log time of the last event."""
        return self.ledger.state.last_ms

    @property
    def served_ms(self) -> int:
        """The served time, in which the deadlines of leases are measured."""
        return self.time.now().served_ms

    @property
    def turn_steps(self) -> int:
        """The steps that a follower may use in one turn."""
        return self._config.turn_steps

    @property
    def is_frame_full(self) -> bool:
        """Whether the open frame takes no new jobs until it is being synced."""
        return self.commit.frame_bytes >= self._config.frame_bytes

    # -- requests

    def call(self, lane: CommandLane, command: AnyCommand, done: Done) -> None:
        """Decides the command in lane order; calls `done` with the reply or a refusal when it is durable."""
        self._enqueue(lane, command, done)

    def read(self, lane: CommandLane, query: Read, done: Done) -> None:
        """Calls `done` with the query's result when the state that it read is durable."""
        self._enqueue(lane, query, done)

    def hear(self, command: AnyCommand, done: Done) -> None:
        """Decides a heartbeat in the next turn and calls `done` with the reply, without waiting for the disk.

        The reply may include state that is not durable yet; the caller must leave that out.
        """

        def decide(_: Ledger, now: Now) -> None:
            reply = self._decide(command, now)
            done(reply if self.commit.vouch is None else self.commit.vouch(reply))

        self._enqueue(CommandLane.WORK, decide, lambda reply: done(reply) if isinstance(reply, Refusal) else None)
        self.wake()

    def _enqueue(self, lane: CommandLane, what: AnyCommand | Read, done: Done) -> None:
        if self._state != "serving":
            done(self._closed)
        elif len(self._lanes[lane]) >= self._config.waiting_max:
            done(OVERLOADED)
        else:
            self._lanes[lane].append((what, done))
            self._backlog += _weight(what)
            # No reply can be sent before the current sync and the one after it have ended. So a small backlog waits
            # for the current sync and is decided in one turn; a large one is decided during the sync.
            if not self.commit.is_syncing or self._backlog >= self._config.overlap_jobs:
                self.wake()

    def wake(self) -> None:
        """Schedules a turn, unless one is scheduled already."""
        if not self._is_turn_due:
            self._is_turn_due = True
            self._ports.scheduler.soon(self._turn)

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Makes a call on this thread after the delay, unless the coordinator has stopped by then."""

        def unless_stopped() -> None:
            if self._state == "serving":
                call()

        self._ports.scheduler.later(delay_ms, unless_stopped)

    # -- a turn

    def _turn(self) -> None:
        self._is_turn_due = False
        if self._state != "serving":
            return
        self._is_busy = True
        try:
            self._run_turn()
        finally:
            self._is_busy = False

    def _run_turn(self) -> None:
        now = self.time.now()
        if not self._is_room_kept:
            self._keep_room()
        self._is_starved = self._is_grant_refused = False
        self._backlog = 0
        if self._starting:
            self._begin(now)
        leases = self.ledger.leases
        if leases.is_expiry_due(now):
            self.execute(self._expiry, now)
            if leases.is_behind and not self._is_starved:
                self.wake()
        # Move due delayed jobs into their lanes, within the steps of one turn.
        self.is_ripening = not self.ledger.state.ready.promote(now.log_ms, self._config.turn_steps)
        if self.is_ripening:
            self.wake()
        if self._reports.waiting:
            self._retry_reports(now)
        self._take_commands(now)
        for follower in self.followers:
            follower.follow(now)
        retained_for_ms = self._retain(now)
        self.commit.flush_or_linger()
        self._plan(now, retained_for_ms)

    def _take_commands(self, now: Now) -> None:
        work, submits, lists = self._lanes
        if work:
            self._take_from(work, self._config.work_frame_bytes, now)
        if submits:
            self._take_from(submits, self._config.frame_bytes, now)
        if lists and not self.is_ripening:
            self._handle(*lists.popleft(), now)

    def _take_from(self, lane: deque[tuple[AnyCommand | Read, Done]], frame_bytes: int, now: Now) -> None:
        steps = self._config.turn_steps
        while lane and steps > 0 and self.commit.frame_bytes < frame_bytes:
            what, done = lane.popleft()
            steps -= EVENT_STEPS + _weight(what)
            self._handle(what, done, now)

    def _handle(self, what: AnyCommand | Read, done: Done, now: Now) -> None:
        reply = self._reply_to(what, now)
        if reply is NO_SPACE and isinstance(what, commands.Report):
            self._keep_waiting(what, done, now)
        else:
            self.commit.answer(done, reply)

    def _reply_to(self, what: AnyCommand | Read, now: Now) -> object:
        try:
            return what(self.ledger, now) if callable(what) else self._decide(what, now)
        except Exception as error:  # noqa: BLE001 - deciding changes nothing, so only this request fails
            if self._state == "failed":  # the journal, and the error was reported
                return self._closed
            for observer in self.observers:
                observer.bug(what, error)
            return BROKEN

    def _keep_waiting(self, report: commands.Report, done: Done, now: Now) -> None:
        if not self._reports.waiting:
            self._reports_due_ms = now.served_ms + self._config.tick_ms
        refused = self._reports.add(report, done)
        if refused is not done:
            self.ledger.leases.keep(report, now)
        if refused is not None:
            self.commit.answer(refused, NO_SPACE)

    def _retry_reports(self, now: Now) -> None:
        """Records the reports that wait for space, oldest first, until the space runs out."""
        if now.served_ms < self._reports_due_ms:
            return
        while self._reports.waiting and self.commit.frame_bytes < self._config.work_frame_bytes:
            report, done = self._reports.first()
            reply = self._reply_to(report, now)
            if reply is NO_SPACE:
                self._reports_due_ms = now.served_ms + self._config.tick_ms
                return
            self._reports.remove(report)
            self.ledger.leases.let_go(report)
            self.commit.answer(done, reply)

    def execute(self, command: AnyCommand, now: Now, done: Done | None = None) -> object:
        """Decides an internal command inside a turn; returns the reply before it is durable, `done` gets it after."""
        reply = self._decide(command, now)
        if done is not None:
            self.commit.answer(done, reply, is_first=True)
        return reply

    @property
    def is_granting(self) -> bool:
        """Whether grants are tried: not while reports wait for space, nor after a grant of this turn found none."""
        return not self._reports.waiting and not self._is_grant_refused

    def _decide(self, command: AnyCommand, now: Now) -> object:
        kind = type(command)
        if kind is commands.GrantLeases and (self.is_ripening or not self.is_granting):
            return [] if self.is_ripening else NO_SPACE
        if kind in _NEW_JOBS and (refusal := self.memory.refusal()) is not None:
            return refusal
        decision = self.ledger.decide(command, now)
        if isinstance(decision, Refusal):
            return decision
        if decision.extension is not None:
            # A live worker keeps its leases even if the journal has no space for the extension.
            self.ledger.leases.prolong(decision.extension)
        if decision.event is None:
            return decision.reply
        return self._recorded(decision, decision.event)

    def _recorded(self, decision: Decision, event: AnyEvent) -> object:
        """Returns the reply if the event is recorded, else a refusal."""
        if self.unwritable is not None and (refusal := self.unwritable(event)) is not None:
            return refusal
        if self._record(event):
            return decision.reply
        self._is_starved = True
        if type(event) is events.Extended:
            return decision.reply
        self._is_grant_refused |= type(event) is events.Granted
        return NO_SPACE

    def _record(self, event: AnyEvent) -> bool:
        data = events.encode_one(event)
        size = len(data) if self.commit.frame_bytes else len(data) + FRAME_BYTES
        config, leases = self._config, len(self.ledger.state.leases)
        leaves = journal_room.to_leave(
            event, size, leases, spare_bytes=config.spare_bytes, outcome_bytes=config.outcome_bytes
        )
        if not self.commit.make_room(size, spare=leaves):
            return False
        self._apply(event)
        self.commit.append(data, size)
        return True

    def _keep_room(self) -> None:
        """Keeps space for the ends of leases from before the start, when there is enough; grants keep their own."""
        if not self._is_room_kept:
            leases = len(self.ledger.state.leases)
            self._is_room_kept = self.commit.reserve(0, spare=leases * self._config.outcome_bytes)

    def _apply(self, event: AnyEvent) -> None:
        try:
            self.ledger.apply(event)
            position = self.ledger.position
            for observer in self.observers:
                observer.applied(position, event, self.ledger)
        except BaseException as error:
            # The state may include an event that no frame will contain, so it must not be used any more.
            self.commit.fail(error)
            raise

    # -- durability

    def sealed(self, frame: list[bytes]) -> tuple[bytes, int]:
        """Returns the body of a frame, and the digest of the state."""
        return events.join(frame), self.ledger.digest

    @property
    def queued(self) -> int:
        """The number of commands in the lanes."""
        return sum(map(len, self._lanes))

    def on_durable(self, position: int) -> None:
        """Notifies the observers."""
        for observer in self.observers:
            observer.durable(position)

    def on_replied(self) -> None:
        """Decides the commands that arrived during the sync; without any, syncs the open frame."""
        if self._state != "serving" or not self.queued:
            self._flush()
        elif self._is_busy:
            self.wake()
        else:
            self._turn()

    def on_failed(self, error: BaseException, unanswered: list[Done]) -> None:
        """Stops the process without a reply, because it is unknown what is durable.

        If another process may lead the journal now, the process goes on, so the callers get a refusal.
        """
        self._state = "failed"
        if isinstance(error, LeadershipLostError):
            self._refuse_all(unanswered)
        self._ports.fatal(error)

    def _refuse_all(self, unanswered: list[Done]) -> None:
        self._closed = NOT_LEADER
        if self._timer:
            self._timer.cancel()
        for done in unanswered:
            done(OUTCOME_UNKNOWN)
        for lane in self._lanes:
            while lane:
                lane.popleft()[1](NOT_LEADER)
        for waiting in self._reports.clear():
            waiting(NOT_LEADER)
        if self._on_stopped:
            self._on_stopped()

    def _flush(self) -> None:
        self.commit.flush()
        if self._state == "stopping" and self.commit.is_idle:
            self._state = "stopped"
            if self._on_stopped:
                self._on_stopped()

    # -- time

    def _retain(self, now: Now) -> int | None:
        """Evicts finished jobs that are due; returns the wait until the next one is due, None if there is none."""
        wait_ms = self._retained_for_ms(now)
        if wait_ms is None or wait_ms > 0:
            return wait_ms
        self.execute(self._retention, now)
        return self._retained_for_ms(now)

    def _retained_for_ms(self, now: Now) -> int | None:
        return retention.wait_ms(self.ledger.state.finished, self._retention, now.log_ms)

    def _plan(self, now: Now, retained_for_ms: int | None) -> None:
        """Schedules the next turn: soon if commands can be decided, otherwise by a timer."""
        frame_bytes_max = self._config.work_frame_bytes if self._lanes[CommandLane.WORK] else self._config.frame_bytes
        if self.queued and self.commit.frame_bytes < frame_bytes_max:
            self.wake()
        delay_ms = self._delay_ms(now, retained_for_ms)
        if delay_ms is None:
            return
        due_ms = now.served_ms + delay_ms
        if self._timer and self._timer_due_ms <= due_ms and self._timer_due_ms > now.served_ms:
            return
        if self._timer:
            self._timer.cancel()
        self._timer_due_ms = due_ms
        self._timer = self._ports.scheduler.later(delay_ms, self._on_timer)

    def _delay_ms(self, now: Now, retained_for_ms: int | None) -> int | None:
        wait_ms = _NEVER_MS
        deadline_ms = self.ledger.leases.next_deadline_ms()
        if deadline_ms is not None:
            wait_ms = min(deadline_ms - now.served_ms, self._config.tick_ms)
        elif any(follower.is_watching for follower in self.followers):
            wait_ms = self._config.tick_ms
        due_ms = self.ledger.state.ready.next_due_ms()
        if due_ms is not None:
            wait_ms = min(wait_ms, due_ms - now.log_ms)
        if retained_for_ms is not None:
            wait_ms = min(wait_ms, retained_for_ms)
        if self._reports.waiting:
            wait_ms = min(wait_ms, self._config.tick_ms)
        if self.time.log.ahead_ms:  # a doubt ends only when the clock is read
            wait_ms = min(wait_ms, RECHECK_MS)
        if wait_ms == _NEVER_MS:
            return None
        return max(self._config.tick_ms if self._is_starved else 1, min(wait_ms, RECHECK_MS))

    def _on_timer(self) -> None:
        # `wake` goes through the scheduler again: input that has arrived is read before leases expire.
        self._timer = None
        self.wake()


def _weight(command: AnyCommand | Read) -> int:
    if type(command) is commands.Submit:
        return len(command.jobs)
    return len(command.rows) if type(command) is commands.Report else 1
