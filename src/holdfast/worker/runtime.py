"""The worker's loop: keeps the slots full over one session, and keeps outcomes until they are acknowledged.

Invariants:
- The worker keeps an outcome until the backend confirms that it is durable; a new session sends it again.
- The worker stops an attempt whose lease was revoked. If a restart of the backend does not renew leases, the worker
  also stops attempts whose leases must have expired since the last heartbeat was sent.
- The worker requests leases for free slots and for a short backlog of short jobs. A lease that waits in the backlog for
  longer than a heartbeat interval is released unrun.
- A stop needs no answer from the backend: a worker without jobs ends even if the backend cannot be reached, and the
  time to hand jobs back is limited.
"""

import asyncio
import random
import secrets
import sys
import time
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from holdfast import limits
from holdfast.core.capabilities import Capabilities, Capability
from holdfast.core.workers import beat_ms
from holdfast.errors import FINAL, HoldfastError, UnimplementedError
from holdfast.observe.logs import get_logger
from holdfast.ports import Directive, Introduction, WorkApi, WorkSession
from holdfast.process.memory import resident_bytes
from holdfast.worker.attempt_log import AttemptLog
from holdfast.worker.attempt_spans import attempt_spans
from holdfast.worker.builtin import BUILTIN
from holdfast.worker.config import WorkerConfig
from holdfast.worker.executors.port import AttemptTally, Ended
from holdfast.worker.handlers import Handler
from holdfast.worker.loop_watch import watch_loop
from holdfast.worker.notes import Notes
from holdfast.worker.outbox import Outbox
from holdfast.worker.slots import Slots

T = TypeVar("T")

#: Outcomes wait at most this many turns of the loop, some tenths of a millisecond, to be sent together with others.
_TURNS_MAX = 48


class Worker:
    """Runs jobs until it is stopped."""

    def __init__(self, api: WorkApi, handlers: Mapping[str, Handler], config: WorkerConfig) -> None:
        self._api = api
        self._config = config
        self._instance = secrets.token_hex(8)
        self._log = get_logger().bind(worker_id=config.worker_id)
        self._attempts = AttemptLog(self._log, config.worker_id)
        self._notes = Notes()
        self._slots = Slots(handlers, config, self._ended, self._notes.add, attempt_spans(config.worker_id))
        self._outbox = Outbox()
        #: Credits that the backend has not used yet.
        self._offered = 0
        self._changed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()
        #: Set when the time to hand jobs back is over.
        self._over = asyncio.Event()
        #: Set by the third stop: the worker waits for no answer.
        self._abandoned = asyncio.Event()
        self._is_hurried = False
        #: Whether the backend has confirmed after `drain` that no more leases will arrive in this session.
        self._is_drained = False
        self._lease_ms = limits.LEASE_MS_DEFAULT
        self._heartbeat_ms = limits.HEARTBEAT_MS
        self._are_leases_renewed = False
        #: Whether leases were released in a session that the server may not have read to its end.
        self._is_return_owed = False
        #: The latest time at which a lease may have been granted or extended.
        self._extended_s = time.monotonic()
        #: Whether the worker runs functions of an app, which may call progress() and log().
        self._has_app = bool(handlers.keys() - BUILTIN.keys())
        self._is_warned = False
        self.attached = asyncio.Event()
        #: Whether the worker ends so that a fresh process can replace this one.
        self.is_recycling = False

    @property
    def tally(self) -> AttemptTally:
        """The counters of this worker's attempts."""
        return self._slots.tally

    @property
    def running(self) -> int:
        """The number of jobs that the worker holds, including those that wait for a slot."""
        return len(self._slots.contexts)

    @property
    def has_left_behind(self) -> bool:
        """Whether a coroutine of a job or of a session's close still runs; the loop cannot be closed cleanly then."""
        return bool(self._slots.tasks.left_behind) or self._abandoned.is_set()

    def stop(self) -> None:
        """First call: takes no more jobs and finishes the running ones. Second: hands them back. Third: just ends."""
        if self.is_recycling:
            self.is_recycling = False  # it is draining already; now no fresh process replaces it
        elif not self._stopping.is_set():
            self._drain()
        elif not self._is_hurried:
            self._is_hurried = True
            self._hurry_up()
        else:
            self._abandoned.set()
            self._end_hurry()

    def _drain(self) -> None:
        self._stopping.set()
        self._changed.set()
        if self._slots.contexts:
            jobs = len(self._slots.contexts)
            self._log.info("draining", jobs=jobs, message="a second stop hands the jobs back at once")
        asyncio.get_running_loop().call_later(self._config.drain_ms / 1_000, self._hurry_up)

    async def run(self) -> None:
        """Works until stopped. Reopens a lost session with jittered back-off, as often as it takes."""
        watch = asyncio.create_task(watch_loop(self._slots.tasks))
        try:
            await self._run()
        finally:
            watch.cancel()
            await self._slots.close()
            self._attempts.flush()

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                session = await self._open()
            except FINAL:
                raise
            except HoldfastError as error:
                failures = await self._back_off(failures, error)
                if self._hurry.is_set():
                    return None
            else:
                if session is None:
                    return None
                try:
                    return await self._serve(session)
                except FINAL:
                    raise
                except HoldfastError as error:
                    failures = await self._back_off(0 if self.attached.is_set() else failures, error)
                finally:
                    self.attached.clear()
                    await self._unless(self._abandoned.wait(), session.close())
            if self._may_leave:
                return None

    async def _open(self) -> WorkSession | None:
        """Opens a session; None if the worker may end before the backend answers."""
        opening = asyncio.create_task(self._api.open(self._introduction()))
        try:
            await self._unless(self._leaving(), asyncio.wait([opening]))
            if opening.done():
                return opening.result()
        finally:
            opening.cancel()
        await self._unless(self._abandoned.wait(), asyncio.wait([opening]))
        if opening.done() and not opening.cancelled() and opening.exception() is None:
            return opening.result()  # it opened before it was cancelled; the caller ends it cleanly
        return None

    async def _unless(self, other: Coroutine[Any, Any, object], work: Coroutine[Any, Any, T]) -> None:
        """Waits for `work` unless `other` completes first; `work` then continues in the background."""
        working, happening = asyncio.create_task(work), asyncio.create_task(other)
        try:
            await asyncio.wait([working, happening], return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
        finally:
            happening.cancel()

    async def _leaving(self) -> None:
        """Waits until the worker may end without a session."""
        while not self._may_leave:
            self._changed.clear()
            await self._changed.wait()

    @property
    def _may_leave(self) -> bool:
        return self._over.is_set() or (self._stopping.is_set() and self._is_idle and not self._is_return_owed)

    @property
    def _is_idle(self) -> bool:
        return not self._slots.contexts and not self._outbox.rows

    async def _back_off(self, failures: int, error: HoldfastError) -> int:
        """Waits before the next session; gives up the jobs once all leases must have expired for good."""
        ceiling_ms = min(limits.RETRY_FIRST_MS * 2**failures, limits.RETRY_MS_MAX)
        # Warn at tries 1, 2, 3, 5, 9, 17, ... only, so that a long outage does not fill the log.
        log = self._log.warning if failures.bit_count() <= 1 else self._log.debug
        log("disconnected", message=error.message, tries=failures + 1, retry_in_ms_max=ceiling_ms)
        is_over = (time.monotonic() - self._extended_s) * 1_000 > self._lease_ms
        if is_over and not self._are_leases_renewed:
            self._give_up([*self._slots.contexts, *self._outbox.rows])
        waiting = [asyncio.create_task(each) for each in (self._hurry.wait(), self._leaving())]
        pause_s = random.uniform(0, ceiling_ms) / 1_000
        await asyncio.wait(waiting, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
        for each in waiting:
            each.cancel()
        return failures + 1

    def _introduction(self) -> Introduction:
        held = {token: context.job_id for token, context in self._slots.contexts.items() if not context.is_revoked}
        held.update({token: row.job_id for token, row in self._outbox.rows.items()})
        config = self._config
        return Introduction(
            config.worker_id,
            self._slots.types,
            config.queues,
            config.slots,
            held,
            self._instance,
            config.dies_with_server,
        )

    # -- a session

    async def _serve(self, session: WorkSession) -> None:
        self._offered = 0
        welcome = await session.next()
        if welcome.capabilities is not None:
            self._check(welcome.capabilities)
        self._are_leases_renewed = welcome.are_leases_renewed
        self._is_return_owed = False  # the introduction did not name them, so the server has taken them back
        await self._take(welcome)
        self.attached.set()
        self._log.info("attached", lease_ms=self._lease_ms)
        self._outbox.begin_session()
        self._is_drained = False
        self._changed.set()
        tasks = [
            asyncio.create_task(task)
            for task in (self._listen(session), self._speak(session), self._beat(session), self._until_over())
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _until_over(self) -> None:
        await self._over.wait()

    def _check(self, told: Capabilities) -> None:
        """Refuses a backend on which the app's schedules would never fire; warns once if the backend drops notes."""
        schedules = self._config.schedules
        if schedules and not told.has(Capability.SCHEDULES):
            raise UnimplementedError(
                f"the app declares {len(schedules)} schedules ({', '.join(sorted(schedules))}), and the {told.backend}"
                " backend has no schedules; remove @app.schedule, or use a backend with schedules (a directory,"
                " holdfast server, the monolith or the pipeline)",
                reason="CAPABILITY_MISSING",
            )
        if self._has_app and not self._is_warned and not told.has(Capability.NOTES):
            self._is_warned = True
            self._log.warning("capability_missing", capability="notes", message=told.lack(Capability.NOTES))

    async def _listen(self, session: WorkSession) -> None:
        while True:
            await self._take(await session.next())

    async def _beat(self, session: WorkSession) -> None:
        """Sends heartbeats; after each one sends notes, releases the old backlog and checks the memory."""
        while True:
            await asyncio.sleep(beat_ms(self._heartbeat_ms, self._lease_ms) / 1_000)
            await session.extend()
            self._extended_s = time.monotonic()
            for notes in self._notes.take():
                await session.note(notes)
            await self._hand_back(session)
            self._look_at_memory()

    async def _hand_back(self, session: WorkSession) -> None:
        """Releases jobs that have waited for a slot since the previous heartbeat: another worker can run them."""
        waited_s = beat_ms(self._heartbeat_ms, self._lease_ms) / 1_000
        await self._release_backlog(session, time.monotonic() - waited_s)

    async def _release_backlog(self, session: WorkSession, before_s: float = float("inf")) -> None:
        dropped = self._slots.drop_backlog(before_s)
        if dropped:
            self._slots.pace.slow_down(time.monotonic() - dropped[0].arrived_s)
            self._log.info("released", jobs=len(dropped), message="no slot was free for them")
            await session.release([context.token for context in dropped if not context.is_revoked])

    async def _speak(self, session: WorkSession) -> None:
        """Sends outcomes and requests for leases as attempts end; drains when the worker is stopped."""
        is_draining = is_released = False
        while True:
            await self._changed.wait()
            await self._let_more_end()
            self._changed.clear()
            if self._stopping.is_set() and not is_draining:
                is_draining = True
                await session.drain()
                await self._release_backlog(session)
            await self._report(session)
            if not is_draining:
                await self._ask(session)
            if self._hurry.is_set() and not is_released:
                is_released = True
                await self._release_all(session)
            if is_draining and self._is_drained and self._is_idle:
                return

    async def _let_more_end(self) -> None:
        """Waits while coroutines end turn by turn and others take their slots: one message carries their outcomes."""
        turns = _TURNS_MAX if self._slots.tasks.running else 0
        while self._slots.waiting and turns:
            turns -= 1
            await asyncio.sleep(0)

    async def _ask(self, session: WorkSession) -> None:
        """Requests the leases that are wanted and were not requested yet."""
        slots = self._config.slots
        backlog = min(self._slots.pace.backlog(slots), self._jobs_left())
        want = slots + backlog - len(self._slots.contexts) - self._offered
        if want > 0:
            self._offered += want
            await session.want(want)

    def _jobs_left(self) -> int:
        """The number of jobs that this process may still run before it is replaced; the limit of the backlog."""
        config = self._config
        is_bounded = config.is_replaceable and config.max_jobs
        return max(0, config.max_jobs - self._slots.ended_here) if is_bounded else sys.maxsize

    async def _release_all(self, session: WorkSession) -> None:
        tokens = [token for token, context in self._slots.contexts.items() if not context.is_revoked]
        self._give_up(tokens)
        if tokens:
            self._is_return_owed = True
            await session.release(tokens)

    def _hurry_up(self) -> None:
        if self._hurry.is_set():
            return
        self._hurry.set()
        self._changed.set()
        left_ms = self._config.kill_grace_ms + limits.HAND_BACK_MS
        if self._slots.contexts:
            self._log.info("handing_back", jobs=len(self._slots.contexts), within_ms=left_ms)
        asyncio.get_running_loop().call_later(left_ms / 1_000, self._end_hurry)

    def _end_hurry(self) -> None:
        self._over.set()
        self._changed.set()

    async def _report(self, session: WorkSession) -> None:
        for notes in self._notes.take_last():
            await session.note(notes)
        for report_id, rows in self._outbox.take():
            await session.report(report_id, rows)

    async def _take(self, directive: Directive) -> None:
        self._extended_s = time.monotonic()
        self._lease_ms = directive.lease_ms or self._lease_ms
        self._heartbeat_ms = directive.heartbeat_ms or self._heartbeat_ms
        self._outbox.acknowledge(directive.reported)
        self._is_drained |= directive.is_drained
        if self._stopping.is_set():
            self._changed.set()  # this may be the last answer that the drain waits for
        if directive.is_drain_asked and not self._stopping.is_set():
            self._log.info("drain_asked")
            self._drain()
        self._give_up(directive.revoked)
        for token in directive.cancels:
            context = self._slots.contexts.get(token)
            if context is not None:
                self._slots.interrupt(context)
        if directive.leases:
            self._offered = max(0, self._offered - len(directive.leases))
            self._slots.take(directive.leases)

    def _give_up(self, tokens: Iterable[int]) -> None:
        """Stops the jobs of leases that this worker no longer holds, and discards their outcomes."""
        for token in tokens:
            self._outbox.forget(token)
            context = self._slots.contexts.get(token)
            if context is not None:
                context.is_revoked = True
                self._slots.interrupt(context)

    # -- jobs that end

    def _ended(self, ended: list[Ended]) -> None:
        """Queues the outcomes of ended attempts for the next report, unless their leases were lost or handed back."""
        reported: list[Ended] = []
        for pair in ended:
            context, row = pair
            if context.is_revoked:
                self._log.info("given_up", job_id=context.job_id, message="its lease was lost or handed back")
                continue
            reported.append(pair)
            if context.has_said:
                self._notes.end(context)
            self._outbox.add(row)
        self._attempts.ended(reported)
        self._changed.set()
        tally, config = self._slots.tally, self._config
        if config.max_jobs and self._slots.ended_here >= config.max_jobs:
            self._recycle(f"it has run {config.max_jobs} jobs")
        elif tally.written_off >= config.slots:
            self._recycle("as many jobs as it has slots did not end when interrupted")

    def _look_at_memory(self) -> None:
        limit = self._config.max_memory_bytes
        if limit and (now := resident_bytes()) > limit:
            self._recycle(f"it uses {now >> 20} MiB of memory, more than the limit of {limit >> 20} MiB")

    def _recycle(self, why: str) -> None:
        if self._config.is_replaceable and not self._stopping.is_set():
            self._log.info("recycling", message=f"a fresh process replaces this worker: {why}")
            self.is_recycling = True
            self._drain()
