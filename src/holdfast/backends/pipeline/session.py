"""A worker's session in the pipeline: tickets from the queue processes, leases from the store, both by its own pull.

Invariants:
- What a ticket names runs only under a lease that the store has given; a ticket is deleted once that is decided.
- A call that was not answered is made again, or its loss is seen by the next heartbeat; the session goes on meanwhile.
- What the store may have given up is revoked here by this process's own clock, whether or not it can be reached.
- After `is_drained` is told, and before `close` hands back, no start is under way: nothing can be granted unseen.
"""

import asyncio
import time
from collections.abc import Collection, Coroutine, Sequence
from typing import Any

from holdfast.backends.holding import Acknowledging, Holding, News
from holdfast.backends.pipeline.attending import Attendance
from holdfast.backends.pipeline.discarding import Discarding
from holdfast.backends.pipeline.ending import ended
from holdfast.backends.pipeline.http import Lines
from holdfast.backends.pipeline.messages import ASSIGNED, REPLACED, Placed
from holdfast.backends.pipeline.pulling import Found, Puller
from holdfast.backends.pipeline.reporting import Numbered, Reporter
from holdfast.backends.pipeline.store import Runs
from holdfast.backends.pipeline.work_stats import WorkConfig, WorkStats
from holdfast.backends.ports import Directive, Introduction
from holdfast.core.commands import ReportRow
from holdfast.core.lifecycle import TERMINAL
from holdfast.core.model import Note
from holdfast.errors import AbortedError, HoldfastError, InvalidArgumentError, UnavailableError
from holdfast.logs import get_logger

#: How long to wait before the store is asked to start something again.
_START_PAUSE_S = 0.25


class PipelineSession:
    """One session. Made by `start`; what it pulls, reports and keeps time with are tasks of its own."""

    def __init__(
        self, runs: Runs, lines: Lines, introduction: Introduction, config: WorkConfig, stats: WorkStats
    ) -> None:
        self._runs = runs
        self._introduction = introduction
        self._worker = introduction.worker_id
        self._config = config
        self._stats = stats
        self._log = get_logger().bind(worker_id=introduction.worker_id)
        self._loop = asyncio.get_running_loop()
        self._holding = Holding()
        self._news = News()
        self._heard = asyncio.Event()
        self._reports = Acknowledging()
        #: Leases whose outcome is on its way.
        self._reporting: set[int] = set()
        #: The store may have started what this session does not know of.
        self._is_unsure = False
        #: Calls of the store that are not answered.
        self._silent: set[str] = set()
        self._is_draining = False
        self._failure: HoldfastError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._attending: asyncio.Task[None] | None = None
        self._deleting = Discarding(lines, "/queue/delete")
        self._puller = Puller(lines, introduction, self._begin_jobs)
        self._reporter = Reporter(runs, self._worker, self._answered, lambda error: self._miss("report", error))
        self._attendance = Attendance(
            lines, config.coordinator, introduction, lambda: len(self._holding.named()), self._place
        )

    async def start(self, *, is_back: bool = False) -> None:
        """Says who is there and what is still held; `UnavailableError` if the store cannot be reached.

        One that is back has lived on: what it does not name was not what ended it.
        """
        held, lease_ms, sent_s = self._introduction.held, self._config.lease_ms, time.monotonic()
        kept = await self._runs.arrive(self._worker, held, lease_ms, is_spent=not is_back)
        for token in kept:
            self._holding.add(token, held[token], sent_s + lease_ms / 1_000, is_delivered=True)
        self._news.revoked += set(held).difference(kept)
        self._news.lease_ms, self._news.heartbeat_ms = lease_ms, self._config.heartbeat_ms
        self._watch_time()
        await self._attendance.begin()
        self._spawn(self._pull())
        self._attending = self._spawn(self._attendance.run())
        self._spawn(self._reporter.run())

    # -- what the holder does

    async def next(self) -> Directive:
        """All that has come since the last one; waits if that is nothing."""
        while True:
            if self._failure is not None:
                raise self._failure
            if self._news.is_any:
                news, self._news = self._news, News()
                directive = news.directive()
                self._holding.deliver(lease.token for lease in directive.leases)
                return directive
            self._heard.clear()
            await self._heard.wait()

    async def want(self, count: int) -> None:
        """More room."""
        self._refuse_if_over()
        self._puller.want(count)

    async def report(self, report_id: int, rows: Sequence[ReportRow]) -> None:
        """With whatever else is to be reported."""
        self._refuse_if_over()
        for row in rows:
            if row.state not in TERMINAL:
                message = f"expected an outcome to be DONE, FAILED or CANCELED, got {row.state}"
                raise InvalidArgumentError(message, reason="OUTCOME_INVALID")
        self._reports.begin(report_id, len(rows))
        self._reporting.update(row.token for row in rows)
        self._reporter.add(report_id, rows)
        if not rows:
            self._acknowledge(report_id, 0)

    async def note(self, notes: Sequence[Note]) -> None:
        """Nobody takes them down here."""
        self._refuse_if_over()

    async def extend(self) -> None:
        """Extends every lease; the answer says what should stop and what is lost."""
        self._refuse_if_over()
        named, sent_s = self._holding.named(), time.monotonic()
        if not named:
            return
        lease_ms = self._config.lease_ms
        try:
            heard = await self._runs.extend(self._worker, list(named), lease_ms)
        except HoldfastError as error:
            self._miss("heartbeat", error)
            if not error.retryable:
                raise
            return
        self._hit("heartbeat")
        self._holding.extend(heard.held, sent_s + lease_ms / 1_000)
        # What is being reported may be over in the store before this session has heard so.
        self._revoke(set(named).difference(heard.held, self._reporting))
        self._news.cancels += heard.cancels
        self._heard.set()
        self._watch_time()

    async def release(self, tokens: Collection[int]) -> None:
        """At once; if the word is lost, heartbeats no longer name the leases."""
        self._refuse_if_over()
        await self._hand_back(self._holding.drop(tokens), is_spent=False)

    async def drain(self) -> None:
        """No more tickets; `is_drained` follows once nothing is being started."""
        self._refuse_if_over()
        self._is_draining = True
        self._puller.end()
        self._spawn(self._attendance.drain())

    async def close(self) -> None:
        """Hands back what is held, unless the session has failed: then another one may name it."""
        has_failed, is_orderly = self._failure is not None, self._is_draining
        self._end(UnavailableError("the session was closed"))
        self._puller.end()
        self._reporter.end()
        if self._attending is not None:
            self._attending.cancel()
        await ended(tuple(self._tasks))  # what is given last is handed back with the rest
        if self._timer is not None:
            self._timer.cancel()
        unheard = self._holding.drop(self._holding.undelivered())
        await self._hand_back(unheard, is_spent=False)
        if not has_failed:
            # Whoever leaves in order has stopped what it gives back; else it may be what ended the worker.
            await self._hand_back(self._holding.drop(self._holding.named()), is_spent=not is_orderly)
            await self._attendance.leave()
        await self._deleting.flush()
        self._stats.leave()

    # -- from tickets to leases

    async def _pull(self) -> None:
        await self._puller.run()
        self._news.is_drained = True
        self._heard.set()

    def _place(self, placed: Placed) -> None:
        """What the coordinator says."""
        if placed.status == REPLACED:
            self._log.warning("worker_superseded", message="two workers have this id")
            message = f"a newer worker called {self._worker!r} took over; give every worker an id of its own"
            self._end(AbortedError(message, reason="WORKER_SUPERSEDED"))
        elif placed.status == ASSIGNED:
            self._puller.place(placed.high, placed.normal)
            self._stats.queues = [*placed.high, *placed.normal]
            if placed.drain and not self._is_draining:
                self._news.is_drain_asked = True
                self._heard.set()

    async def _begin_jobs(self, found: Found) -> int:
        """Starts what was found, and says how many there are. What cannot be started is of no use to anybody."""
        self._stats.tickets += len(found)
        lease_ms, sent_s = self._config.lease_ms, time.monotonic()
        try:
            await self._make_sure()
            started = await self._runs.start(self._worker, [ticket.job_id for _, ticket in found], lease_ms)
        except HoldfastError as error:
            self._is_unsure = True
            self._miss("start", error)
            self._puller.put_back(found)
            if not error.retryable:
                self._end(error)
            await asyncio.sleep(_START_PAUSE_S)
            return 0
        self._hit("start")
        for lease in started:
            self._holding.add(lease.token, lease.job_id, sent_s + lease_ms / 1_000, is_delivered=False)
        for address, ticket in found:
            self._deleting.add(address, [ticket.job_id])
        self._stats.started += len(started)
        self._stats.dropped += len(found) - len(started)
        if started:
            self._news.leases += started
            self._heard.set()
            self._watch_time()
        return len(started)

    async def _make_sure(self) -> None:
        """Gives back what a start that was not answered may have begun: nobody runs it."""
        if self._is_unsure:
            sent_s, named = time.monotonic(), self._holding.named()
            kept = await self._runs.arrive(self._worker, named, self._config.lease_ms, is_spent=False)
            self._holding.extend(kept, sent_s + self._config.lease_ms / 1_000)
            self._revoke(set(named).difference(kept, self._reporting))
            self._is_unsure = False

    async def _hand_back(self, tokens: Collection[int], *, is_spent: bool) -> None:
        if tokens:
            try:
                await self._runs.release(self._worker, tokens, is_spent=is_spent)
            except HoldfastError as error:
                self._log.info("release_unheard", leases=len(tokens), message=error.message)

    # -- outcomes

    def _answered(self, numbered: Numbered, reason: str) -> None:
        report_id, row = numbered
        self._hit("report")
        if reason:
            self._stats.refused += 1
            self._log.info("report_refused", job_id=row.job_id, token=row.token, reason=reason)
        else:
            self._stats.reported += 1
        self._reporting.discard(row.token)
        self._holding.drop([row.token])
        self._acknowledge(report_id, 1)

    def _acknowledge(self, report_id: int, rows: int) -> None:
        self._news.reported = max(self._news.reported, self._reports.answered(report_id, rows))
        if self._news.reported:
            self._heard.set()

    # -- keeping time

    def _revoke(self, tokens: Collection[int]) -> None:
        gone = self._holding.drop(tokens)
        if gone:
            self._news.revoked += gone
            self._heard.set()

    def _watch_time(self) -> None:
        """Sees to it that what runs out is noticed."""
        next_s = self._holding.next_s()
        if self._timer is None and next_s is not None:
            self._timer = self._loop.call_later(max(0.0, next_s - time.monotonic()), self._look_at_time)

    def _look_at_time(self) -> None:
        self._timer = None
        expired = self._holding.expired(time.monotonic())
        if expired:
            self._log.warning("leases_over", leases=len(expired), message="no heartbeat was answered in their time")
            self._revoke(expired)
        self._watch_time()

    def _miss(self, call: str, error: HoldfastError) -> None:
        """Said once, until every kind of call is answered again."""
        if not self._silent:
            self._log.warning("store_silent", call=call, message=error.message)
        self._silent.add(call)

    def _hit(self, call: str) -> None:
        if call in self._silent:
            self._silent.remove(call)
            if not self._silent:
                self._log.info("store_answers")

    # -- ending

    def _end(self, error: HoldfastError) -> None:
        self._failure = self._failure or error
        self._heard.set()

    def _refuse_if_over(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _spawn(self, steps: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(steps)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        """What ends with an error ends the session; a bug is one, too."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            if not isinstance(error, HoldfastError):
                self._log.error("bug", exc_info=error)
                error = UnavailableError("the session broke; the worker's log says why", reason="SESSION_BROKEN")
            self._end(error)
