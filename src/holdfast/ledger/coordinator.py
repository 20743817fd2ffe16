"""The loop: lanes of commands, and the turns in which they are decided.

A command goes through decide → encode → reserve → apply. Deciding changes nothing, so a command whose event finds no
room is refused as if it had never come; that heals when room returns. A report that finds none waits here, and its
leases are kept (see `journal_room` and `pending_reports`). An applied event is in the open frame, and its reply leaves
when the frame is durable (see `group_commit`). While a frame is synced, commands go on being decided.

Lanes: what workers say goes before what clients submit, and that before lists, so that a flood of submits or a walk
over all jobs cannot let a lease expire. Expiry precedes all of them: a late worker gets a refusal.
"""

from collections import deque
from collections.abc import Callable
from enum import IntEnum
from typing import Protocol

import msgspec

from holdfast import limits
from holdfast.core import commands, events, retention
from holdfast.core.commands import AnyCommand, Refusal
from holdfast.core.events import AnyEvent
from holdfast.core.ledger import Ledger
from holdfast.core.model import Now
from holdfast.errors import Code
from holdfast.journal.port import FRAME_OVERHEAD
from holdfast.ledger import journal_room
from holdfast.ledger.command_clock import STALL_MS, Timekeeper
from holdfast.ledger.group_commit import NO_SPACE, CommitConfig, Done, GroupCommit
from holdfast.ledger.log_clock import ClockMark, ClockTrust
from holdfast.ledger.memory_limit import MemoryWatch
from holdfast.ledger.pending_reports import WaitingReports
from holdfast.ledger.ports import Clock, Scheduler, Storage, SyncThread, Timer

Read = Callable[[Ledger, Now], object]

STOPPING = Refusal(Code.UNAVAILABLE, "STOPPING", "the server is stopping; try another, or again later")
OVERLOADED = Refusal(Code.RESOURCE_EXHAUSTED, "OVERLOADED", "too many requests are waiting; try again later")
BROKEN = Refusal(Code.INTERNAL, "INTERNAL", "the request could not be decided; the server's log says why")

#: What a frame adds to the events in it, exactly, because what is reserved and never used is lost.
FRAME_BYTES = FRAME_OVERHEAD + events.JOIN_BYTES
#: Commands that make jobs.
_NEW_JOBS = frozenset({commands.Submit, commands.TriggerSchedule, commands.Tick})
#: What an event costs beside the jobs in it, in steps of a turn.
EVENT_STEPS = 7
#: Beyond all waits: nothing is due.
_NEVER_MS = 1 << 62
#: A timer never sleeps longer, because the wall clock may jump meanwhile.
RECHECK_MS = 60_000


class CommandLane(IntEnum):
    """Urgency, most urgent first."""

    WORK = 0
    SUBMIT = 1
    LIST = 2


class LoopConfig(CommitConfig, frozen=True):
    """Sizes and intervals of the loop."""

    #: A frame is closed for everything at this size: outputs that pile up behind a slow sync must not outgrow what a
    #: frame may hold.
    work_frame_bytes: int = 64 << 20
    #: Room that submits leave for grants, cancels and whatever else goes on when the disk fills up.
    spare_bytes: int = 4 << 20
    #: Room that is kept for the end of every lease.
    outcome_bytes: int = limits.OUTCOME_BYTES
    #: Reports that wait for room, in bytes; those beyond it wait at their workers.
    waiting_reports_bytes: int = 64 << 20
    #: Waiting commands per lane beyond which new ones are refused.
    waiting_max: int = 20_000
    #: What one turn does for workers, for clients and for dispatch, each, so that the thread returns to its sockets. A
    #: step is about what one more job in an event costs: some microseconds.
    turn_steps: int = 2_000
    #: Waiting jobs (not commands) from which on they are decided while a frame is being synced.
    overlap_jobs: int = 64
    #: How often time is looked at while leases are out or workers wait; well below what counts as a stall.
    tick_ms: int = STALL_MS // 2
    retain_ms: int = 86_400_000
    retain_jobs: int = 1_000_000
    retain_bytes: int = 512 << 20
    retain_failed_ms: int = limits.RETAIN_FAILED_MS_DEFAULT
    trust: ClockTrust = ClockTrust()


class Observer(Protocol):
    """Is told what happens, on the coordinator's thread; must be quick and must not raise."""

    def applied(self, position: int, event: AnyEvent, ledger: Ledger) -> None:
        """An event became part of the state; it is not durable yet."""
        ...

    def durable(self, position: int) -> None:
        """Everything up to this position is durable."""
        ...

    def bug(self, command: object, error: Exception) -> None:
        """A command could not be decided because of a mistake in the program."""
        ...


class Follower(Protocol):
    """Acts on new state within the same turn, before the frame is closed: the dispatcher."""

    @property
    def is_watching(self) -> bool:
        """Whether time must be seen to pass even while nothing is due."""
        ...

    def follow(self, now: Now) -> None:
        """Called after commands were decided and when time has passed."""
        ...


class CoordinatorWorld(msgspec.Struct, frozen=True):
    """The ports, and what to do when the journal fails: stop the process, at once."""

    clock: Clock
    scheduler: Scheduler
    sync: SyncThread
    fatal: Callable[[BaseException], None]
    #: The clocks at the start before this one, where it left a mark.
    previous: ClockMark | None = None
    #: The memory that this process has resident; 0: the system does not tell.
    resident_bytes: Callable[[], int] = lambda: 0


class Coordinator:
    """Owns the ledger. Every method is called on one thread."""

    def __init__(self, ledger: Ledger, storage: Storage, world: CoordinatorWorld, config: LoopConfig) -> None:
        self.ledger = ledger
        self._storage = storage
        self._world = world
        self._config = config
        self._retention = commands.Evict(
            config.retain_ms, config.retain_jobs, config.retain_bytes, config.retain_failed_ms
        )
        self._expiry = commands.Expire(max(1, config.turn_steps // 2))
        self.time = Timekeeper(world.clock, ledger.book.last_ms, previous=world.previous, trust=config.trust)
        #: What a start has to make durable, until there is room for it.
        self._starting: deque[AnyCommand] = deque()
        self.memory = MemoryWatch(ledger, world.resident_bytes, world.clock)
        self._lanes: tuple[deque[tuple[AnyCommand | Read, Done]], ...] = tuple(deque() for _ in CommandLane)
        self.commit = GroupCommit(storage, world.sync, world.scheduler, self, config)
        self._reports = WaitingReports(config.waiting_reports_bytes)
        self._reports_due_ms = 0
        #: In this turn a grant found no room, and so would others.
        self._is_grant_refused = False
        #: Whether delayed jobs are due that are not in their lanes yet: a grant now would not give the next jobs.
        self.is_ripening = False
        #: Whether there is room for the ends of the leases that were out when this life began.
        self._is_room_kept = False
        self._is_turn_due = False
        #: Within a turn: a frame that is synced in it must not begin another one.
        self._is_busy = False
        self._backlog = 0
        self._is_starved = False
        self._state = "new"
        self._timer: Timer | None = None
        self._timer_due_ms = 0
        self._on_stopped: Callable[[], None] | None = None
        self.observers: list[Observer] = []
        self.followers: list[Follower] = []

    # -- life

    def start(self, process: str = "", is_gone: Callable[[str], bool] = lambda _: True) -> None:
        """Replay is over: leases run again, and commands are taken.

        `process` names the one that serves from now on. Workers that died with an earlier one that `is_gone` lose their
        leases at once; all other leases are renewed.
        """
        assert self._state == "new"
        assert self.ledger.position == self.commit.synced, "serve exactly what is durable"
        self._state = "serving"
        now = self.time.now()
        self.ledger.leases.resume(now)
        orphans: dict[tuple[str, str], set[int]] = {}
        for lease in self.ledger.book.leases.values():
            if lease.host:
                orphans.setdefault((lease.host, lease.worker), set()).add(lease.token)
        self._starting.extend(
            commands.Revoke(worker, "disconnected", is_spent=True, tokens=frozenset(tokens))
            for (host, worker), tokens in orphans.items()
            if is_gone(host)
        )
        self._starting.append(commands.Start(self._storage.epoch, process))
        self._keep_room()
        self._begin(now)
        self.wake()

    def _begin(self, now: Now) -> None:
        while self._starting and self.execute(self._starting[0], now) is not NO_SPACE:
            self._starting.popleft()

    def stop(self, done: Callable[[], None]) -> None:
        """Refuses what is still waiting, makes the open frame durable, then calls `done`. Leases stay."""
        if self._state == "stopped":
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
        """Whether commands are taken."""
        return self._state == "serving"

    @property
    def log_ms(self) -> int:
        """The log time of the last event."""
        return self.ledger.book.last_ms

    @property
    def served_ms(self) -> int:
        """The time that leases run in."""
        return self.time.now().served_ms

    @property
    def turn_steps(self) -> int:
        """What a follower may do in one turn."""
        return self._config.turn_steps

    @property
    def is_frame_full(self) -> bool:
        """Whether the open frame takes no new jobs until it is being synced."""
        return self.commit.frame_bytes >= self._config.frame_bytes

    # -- requests

    def call(self, lane: CommandLane, command: AnyCommand, done: Done) -> None:
        """Decides the command in its turn and calls `done` with the reply or a refusal, once durable."""
        self._enqueue(lane, command, done)

    def read(self, lane: CommandLane, query: Read, done: Done) -> None:
        """Calls `done` with the query's answer once everything that it saw is durable."""
        self._enqueue(lane, query, done)

    def hear(self, command: AnyCommand, done: Done) -> None:
        """Decides a heartbeat in the next turn and calls `done` with the reply at once, whatever the disk does.

        The reply promises nothing durable: the caller leaves out of it what is not durable yet.
        """

        def decide(_: Ledger, now: Now) -> None:
            done(self._decide(command, now))

        self._enqueue(CommandLane.WORK, decide, lambda reply: done(reply) if isinstance(reply, Refusal) else None)
        self.wake()

    def _enqueue(self, lane: CommandLane, what: AnyCommand | Read, done: Done) -> None:
        if self._state != "serving":
            done(STOPPING)
        elif len(self._lanes[lane]) >= self._config.waiting_max:
            done(OVERLOADED)
        else:
            self._lanes[lane].append((what, done))
            self._backlog += _weight(what)
            # No answer can leave before the sync that is under way and the one after it: a small backlog waits for
            # the first and is decided in one go; a large one is decided meanwhile.
            if not self.commit.is_syncing or self._backlog >= self._config.overlap_jobs:
                self.wake()

    def wake(self) -> None:
        """There is something to do: takes a turn soon."""
        if not self._is_turn_due:
            self._is_turn_due = True
            self._world.scheduler.soon(self._turn)

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Makes a call on this thread after the delay, unless the coordinator has stopped by then."""

        def unless_stopped() -> None:
            if self._state == "serving":
                call()

        self._world.scheduler.later(delay_ms, unless_stopped)

    # -- a turn

    def _turn(self) -> None:
        self._is_turn_due = False
        if self._state != "serving":
            return
        self._is_busy = True
        try:
            self._go_round()
        finally:
            self._is_busy = False

    def _go_round(self) -> None:
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
        # Delayed jobs that are due move into their lanes, as far as one turn goes.
        self.is_ripening = not self.ledger.book.ready.promote(now.log_ms, self._config.turn_steps)
        if self.is_ripening:
            self.wake()
        if self._reports.waiting:
            self._retry_reports(now)
        self._take_turn(now)
        for follower in self.followers:
            follower.follow(now)
        retained_for_ms = self._retain(now)
        self.commit.flush_or_linger()
        self._plan(now, retained_for_ms)

    def _take_turn(self, now: Now) -> None:
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
        except Exception as error:  # noqa: BLE001 - deciding changes nothing: one broken request need not stop all
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
        """Records the reports that waited for room, oldest first, as far as there is some."""
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
        """Decides a command of the coordinator's own, inside a turn; returns the reply before it is durable."""
        reply = self._decide(command, now)
        if done is not None:
            self.commit.answer(done, reply)
        return reply

    @property
    def is_granting(self) -> bool:
        """Whether a grant may find room; none does before the reports that wait for it."""
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
            # Who lives keeps its leases, whether that can be written down or not.
            self.ledger.leases.prolong(decision.extension)
        if decision.event is None or self._record(decision.event):
            return decision.reply
        self._is_starved = True
        if type(decision.event) is events.Extended:
            return decision.reply
        self._is_grant_refused |= type(decision.event) is events.Granted
        return NO_SPACE

    def _record(self, event: AnyEvent) -> bool:
        data = events.encode_one(event)
        size = len(data) if self.commit.frame_bytes else len(data) + FRAME_BYTES
        config, leases = self._config, len(self.ledger.book.leases)
        leaves = journal_room.to_leave(
            event, size, leases, spare_bytes=config.spare_bytes, outcome_bytes=config.outcome_bytes
        )
        if not self.commit.make_room(size, spare=leaves):
            return False
        self._apply(event)
        self.commit.append(data, size)
        return True

    def _keep_room(self) -> None:
        """Keeps room for the leases of an earlier life, as soon as there is some; grants keep it for their own."""
        if not self._is_room_kept:
            leases = len(self.ledger.book.leases)
            self._is_room_kept = self.commit.reserve(0, spare=leases * self._config.outcome_bytes)

    def _apply(self, event: AnyEvent) -> None:
        try:
            self.ledger.apply(event)
            position = self.ledger.position
            for observer in self.observers:
                observer.applied(position, event, self.ledger)
        except BaseException as error:
            # The state may hold what no frame will: nothing may be built upon it.
            self.commit.fail(error)
            raise

    # -- durability

    def sealed(self, frame: list[bytes]) -> tuple[bytes, int]:
        """The body of a frame, and the digest of the state."""
        return events.join(frame), self.ledger.digest

    @property
    def queued(self) -> int:
        """How many commands wait in the lanes."""
        return sum(map(len, self._lanes))

    def on_durable(self, position: int) -> None:
        """Tells the observers."""
        for observer in self.observers:
            observer.durable(position)

    def on_replied(self) -> None:
        """Goes on with the commands that came during the sync, or with the frame that was begun."""
        if self._state != "serving" or not self.queued:
            self._flush()
        elif self._is_busy:
            self.wake()
        else:
            self._turn()

    def on_failed(self, error: BaseException, unanswered: list[Done]) -> None:
        """Stops the process without a reply, because it is unknown what is durable."""
        del unanswered
        self._state = "failed"
        self._world.fatal(error)

    def _flush(self) -> None:
        self.commit.flush()
        if self._state == "stopping" and self.commit.is_idle:
            self._state = "stopped"
            if self._on_stopped:
                self._on_stopped()

    # -- time

    def _retain(self, now: Now) -> int | None:
        """Forgets what is over its time; how long until a finished job has to be forgotten, None if there is none."""
        wait_ms = self._retained_for_ms(now)
        if wait_ms is None or wait_ms > 0:
            return wait_ms
        self.execute(self._retention, now)
        return self._retained_for_ms(now)

    def _retained_for_ms(self, now: Now) -> int | None:
        return retention.wait_ms(self.ledger.book.finished, self._retention, now.log_ms)

    def _plan(self, now: Now, retained_for_ms: int | None) -> None:
        """Sees to it that the loop turns again in time."""
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
        self._timer = self._world.scheduler.later(delay_ms, self._on_timer)

    def _delay_ms(self, now: Now, retained_for_ms: int | None) -> int | None:
        wait_ms = _NEVER_MS
        deadline_ms = self.ledger.leases.next_deadline_ms()
        if deadline_ms is not None:
            wait_ms = min(deadline_ms - now.served_ms, self._config.tick_ms)
        elif any(follower.is_watching for follower in self.followers):
            wait_ms = self._config.tick_ms
        due_ms = self.ledger.book.ready.next_due_ms()
        if due_ms is not None:
            wait_ms = min(wait_ms, due_ms - now.log_ms)
        if retained_for_ms is not None:
            wait_ms = min(wait_ms, retained_for_ms)
        if self._reports.waiting:
            wait_ms = min(wait_ms, self._config.tick_ms)
        if self.time.log.ahead_ms:  # the doubt ends by looking at the clock
            wait_ms = min(wait_ms, RECHECK_MS)
        if wait_ms == _NEVER_MS:
            return None
        return max(self._config.tick_ms if self._is_starved else 1, min(wait_ms, RECHECK_MS))

    def _on_timer(self) -> None:
        # One more round through the scheduler: what has arrived is read before anything is expired.
        self._timer = None
        self.wake()


def _weight(command: AnyCommand | Read) -> int:
    if type(command) is commands.Submit:
        return len(command.jobs)
    return len(command.rows) if type(command) is commands.Report else 1
