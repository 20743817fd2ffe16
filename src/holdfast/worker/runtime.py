"""The worker's loop: slots kept full over one session, outcomes kept until they are acknowledged.

Invariants:
- An outcome is held until the backend says that it is durable; a new session sends it again.
- A lease that the backend revoked is not worked on any more. Where a restart of the backend does not renew leases, the
  same goes for one that must have run out since the last heartbeat left.
- Room is offered for slots that are free and for a short backlog of short jobs; what waits in it for longer than
  a heartbeat goes back unrun.
- A stop needs no answer: who has no jobs ends while nobody can be reached, and hurry is bounded, whatever the session
  waits for.
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

#: For so many turns of the loop, some tenths of a millisecond, outcomes wait for others to go out with them.
_TURNS_MAX = 48


class Worker:
    """Runs jobs until told to stop."""

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
        #: The time to hand back is over.
        self._over = asyncio.Event()
        #: A stop that came while it hurried: nobody is waited for.
        self._abandoned = asyncio.Event()
        self._is_hurried = False
        #: Since `drain`, no lease is on its way to this session any more.
        self._is_drained = False
        self._lease_ms = limits.LEASE_MS_DEFAULT
        self._heartbeat_ms = limits.HEARTBEAT_MS
        self._are_leases_renewed = False
        #: Whether leases were released in a session of which it is not known that the server has read it to its end.
        self._is_return_owed = False
        #: When a lease may last have been given or extended.
        self._extended_s = time.monotonic()
        #: Whether it runs functions of an app, which may call progress() and log().
        self._has_app = bool(handlers.keys() - BUILTIN.keys())
        self._is_warned = False
        self.attached = asyncio.Event()
        #: It ends because this process should be replaced by a fresh one.
        self.is_recycling = False

    @property
    def tally(self) -> AttemptTally:
        """What has happened so far."""
        return self._slots.tally

    @property
    def running(self) -> int:
        """How many jobs it has, those that wait for a slot included."""
        return len(self._slots.contexts)

    @property
    def has_left_behind(self) -> bool:
        """Whether a coroutine goes on, a job's or the end of a session; its loop can never be closed in order."""
        return bool(self._slots.tasks.left_behind) or self._abandoned.is_set()

    def stop(self) -> None:
        """Once: take no more jobs and finish those that run. Again: hand them back now. A third time: just end."""
        if self.is_recycling:
            self.is_recycling = False  # it drains already; now it ends for good
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
        """Works until stopped; a lost session is opened again with jitter, for as long as it takes."""
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
        """A session; None if the worker may end before anybody answers."""
        opening = asyncio.create_task(self._api.open(self._introduction()))
        try:
            await self._unless(self._leaving(), asyncio.wait([opening]))
            if opening.done():
                return opening.result()
        finally:
            opening.cancel()
        await self._unless(self._abandoned.wait(), asyncio.wait([opening]))
        if opening.done() and not opening.cancelled() and opening.exception() is None:
            return opening.result()  # it was faster: the session ends in order
        return None

    async def _unless(self, other: Coroutine[Any, Any, object], work: Coroutine[Any, Any, T]) -> None:
        """Waits for the work, unless the other thing happens first; then the work goes on by itself."""
        working, happening = asyncio.create_task(work), asyncio.create_task(other)
        try:
            await asyncio.wait([working, happening], return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
        finally:
            happening.cancel()

    async def _leaving(self) -> None:
        """Until the worker may end without a session."""
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
        """Waits before the next session; when every lease must have run out for good, gives the jobs up."""
        ceiling_ms = min(limits.RETRY_FIRST_MS * 2**failures, limits.RETRY_MS_MAX)
        # Every try of a long outage would say the same: after the first ones, ever fewer are worth a warning.
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
        self._is_return_owed = False  # the hello did not name them, so the server has taken them back
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
        """Refuses a backend where schedules of the app would never fire; warns once where notes are dropped."""
        schedules = self._config.schedules
        if schedules and not told.has(Capability.SCHEDULES):
            raise UnimplementedError(
                f"the app declares {len(schedules)} schedules ({', '.join(sorted(schedules))}), and the {told.backend}"
                " backend has no schedules: remove @app.schedule, or keep the jobs where schedules are (a directory,"
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
        """A heartbeat now and then, and with it what else is done now and then."""
        while True:
            await asyncio.sleep(beat_ms(self._heartbeat_ms, self._lease_ms) / 1_000)
            await session.extend()
            self._extended_s = time.monotonic()
            for notes in self._notes.take():
                await session.note(notes)
            await self._hand_back(session)
            self._look_at_memory()

    async def _hand_back(self, session: WorkSession) -> None:
        """What has waited for a slot since the heartbeat before is better off with somebody else."""
        waited_s = beat_ms(self._heartbeat_ms, self._lease_ms) / 1_000
        await self._release_backlog(session, time.monotonic() - waited_s)

    async def _release_backlog(self, session: WorkSession, before_s: float = float("inf")) -> None:
        dropped = self._slots.drop_backlog(before_s)
        if dropped:
            self._slots.pace.slow_down(time.monotonic() - dropped[0].arrived_s)
            self._log.info("released", jobs=len(dropped), message="no slot was free for them")
            await session.release([context.token for context in dropped if not context.is_revoked])

    async def _speak(self, session: WorkSession) -> None:
        """Sends outcomes and free slots as they come, and drains when told to stop."""
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
        """While coroutines that wait for a slot end turn by turn, their outcomes are worth one message, not many."""
        turns = _TURNS_MAX if self._slots.tasks.running else 0
        while self._slots.waiting and turns:
            turns -= 1
            await asyncio.sleep(0)

    async def _ask(self, session: WorkSession) -> None:
        """Offers room for as many leases as are wanted and were not asked for yet."""
        slots = self._config.slots
        backlog = min(self._slots.pace.backlog(slots), self._jobs_left())
        want = slots + backlog - len(self._slots.contexts) - self._offered
        if want > 0:
            self._offered += want
            await session.want(want)

    def _jobs_left(self) -> int:
        """How many jobs this process may still run before it is replaced; more are not worth collecting."""
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
            self._changed.set()  # this may have been the last thing that was waited for
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
        """The leases are no longer ours: their jobs stop, and their outcomes are nobody's business."""
        for token in tokens:
            self._outbox.forget(token)
            context = self._slots.contexts.get(token)
            if context is not None:
                context.is_revoked = True
                self._slots.interrupt(context)

    # -- jobs that end

    def _ended(self, ended: list[Ended]) -> None:
        """Attempts are over: reported, unless their leases are no longer ours."""
        reported: list[Ended] = []
        for pair in ended:
            context, row = pair
            if context.is_revoked:
                self._log.info("given_up", job_id=context.job_id, message="its lease is no longer ours")
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
            self._recycle("as many jobs as it has slots did not end when told to")

    def _look_at_memory(self) -> None:
        limit = self._config.max_memory_bytes
        if limit and (now := resident_bytes()) > limit:
            self._recycle(f"it holds {now >> 20} MiB of memory, more than {limit >> 20}")

    def _recycle(self, why: str) -> None:
        if self._config.is_replaceable and not self._stopping.is_set():
            self._log.info("recycling", message=f"a fresh process follows: {why}")
            self.is_recycling = True
            self._drain()
