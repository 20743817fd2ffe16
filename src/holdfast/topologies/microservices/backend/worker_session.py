"""A worker's session over unary calls: it fetches while room is wanted, and keeps saying what it holds.

Invariants:
- A call that was not answered is made again, or its loss is seen by the next heartbeat; the session goes on meanwhile.
- What the coordinator may have given up is revoked here by this process's own clock, whether or not it can be reached.
- After `drain` is answered, and before `close` says goodbye, no fetch is under way: nothing can be granted unseen.
"""

import asyncio
import time
from collections.abc import Collection, Sequence

from holdfast import limits
from holdfast.core.commands import ReportRow
from holdfast.errors import HoldfastError, UnavailableError
from holdfast.ports import Introduction
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.server.internal_messages import assignment_of, report_request
from holdfast.topologies.microservices import MICROSERVICES
from holdfast.topologies.microservices.backend.coordinator_client import CoordinatorCalls, NoAnswerError
from holdfast.worker.polling_session import KeptSession

#: Calls of one kind that are under way at a time.
_FETCHES_MAX = 16
_REPORTS_MAX = 16


class UnarySession(KeptSession):
    """One session. Made by `start`; what it fetches, reports and keeps time with are tasks of its own."""

    def __init__(self, calls: CoordinatorCalls, introduction: Introduction, heartbeat_ms: int = 0) -> None:
        """`heartbeat_ms` is how often to beat at least; 0: as often as the coordinator says."""
        super().__init__(introduction.worker_id, MICROSERVICES)
        self._calls = calls
        self._introduction = introduction
        self._heartbeat_ms = heartbeat_ms
        self._lease_s = 0.0
        #: Leases that are wanted and were not granted yet.
        self._room = 0
        self._stirred = asyncio.Event()
        self._reporting = asyncio.Semaphore(_REPORTS_MAX)
        self._filling: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Says who is there and what is still held."""
        held, sent_s = self._introduction.held, time.monotonic()
        answer = await self._calls.heartbeat(held, is_arriving=True)
        self._lease_s = answer.lease_ms / 1_000
        for token, job_id in held.items():
            self._holding.add(token, job_id, sent_s + self._lease_s, is_delivered=True)
        beat_ms = answer.next_heartbeat_in_ms
        self._news.lease_ms = answer.lease_ms
        self._news.heartbeat_ms = min(self._heartbeat_ms or beat_ms, beat_ms)
        self._take(answer, held, sent_s)
        self._filling = self._spawn(self._fill())

    # -- what the holder does

    async def want(self, count: int) -> None:
        """More room."""
        self._refuse_if_over()
        self._room += count
        self._stirred.set()

    async def report(self, report_id: int, rows: Sequence[ReportRow]) -> None:
        """One call a row, side by side."""
        self._begin_report(report_id, rows)
        for row in rows:
            self._spawn(self._send(report_id, row))

    async def extend(self) -> None:
        """A heartbeat; its answer says what should stop and what is lost."""
        self._refuse_if_over()
        await self._beat({})

    async def release(self, tokens: Collection[int]) -> None:
        """At once; if the word is lost, heartbeats no longer name the leases."""
        self._refuse_if_over()
        jobs = self._holding.named()
        await self._beat({token: jobs[token] for token in self._holding.drop(tokens)})

    async def drain(self) -> None:
        """No more fetches; `is_drained` follows once none is under way."""
        self._refuse_if_over()
        self._is_draining = True
        self._stirred.set()

    async def close(self) -> None:
        """Says goodbye, unless the session has failed: then another one may name what is held."""
        has_failed, is_orderly = self._failure is not None, self._is_draining
        self._end(UnavailableError("the session was closed"))
        self._is_draining = True
        self._stirred.set()
        if self._filling is not None:
            await asyncio.wait([self._filling])  # what it is granted last is handed back with the rest
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if not has_failed:
            await self._leave(is_orderly=is_orderly)
        if self._timer is not None:
            self._timer.cancel()
        await self._calls.close()

    async def _leave(self, *, is_orderly: bool) -> None:
        """In good order everything is handed back unspent; else only what was never delivered."""
        named = self._holding.named()
        released = named if is_orderly else self._holding.undelivered()
        running = {token: job_id for token, job_id in named.items() if token not in released}
        try:
            await self._calls.heartbeat(running, released=released, is_leaving=True)
        except HoldfastError as error:
            self._log.info("left_unheard", leases=len(named), message=error.message)

    # -- fetching

    async def _fill(self) -> None:
        """Several calls at a time while each brings something, one now and then while none does."""
        width = 1
        while not self._is_draining:
            self._stirred.clear()
            if not self._room:
                await self._stirred.wait()
                continue
            asked = min(self._room, width)
            answers = await asyncio.gather(*(self._fetch() for _ in range(asked)))
            granted = sorted((answer for answer in answers if answer.assigned), key=lambda answer: answer.token)
            self._room -= len(granted)
            self._deliver(granted)
            width = min(2 * width, _FETCHES_MAX) if len(granted) == asked else 1
            if len(granted) < asked and not self._is_draining:
                await self._pause(max(answer.retry_after_ms for answer in answers))
        self._news.is_drained = True
        self._heard.set()

    async def _fetch(self) -> pb.FetchWorkResponse:
        sent_s = time.monotonic()
        try:
            answer = await self._calls.fetch()
        except NoAnswerError as error:
            self._miss("fetch", error)
        except HoldfastError as error:
            self._end(error)
        else:
            self._hit("fetch")
            if answer.assigned:
                self._holding.add(answer.token, answer.job_id, sent_s + self._lease_s, is_delivered=False)
                self._watch_time()
            return answer
        return pb.FetchWorkResponse(retry_after_ms=limits.FETCH_RETRY_MS_DEFAULT)

    def _deliver(self, granted: list[pb.FetchWorkResponse]) -> None:
        if granted:
            self._news.leases += map(assignment_of, granted)
            self._heard.set()

    async def _pause(self, hint_ms: int) -> None:
        """As long as the coordinator says, or until something has changed here."""
        hint_ms = max(limits.FETCH_RETRY_MS_MIN, min(hint_ms, limits.FETCH_RETRY_MS_MAX))
        timer = self._loop.call_later(hint_ms / 1_000, self._stirred.set)
        await self._stirred.wait()
        timer.cancel()

    # -- reporting

    async def _send(self, report_id: int, row: ReportRow) -> None:
        """Until it is answered, whichever way; then the lease is over."""
        request = report_request(self._introduction.worker_id, row)
        delay_ms = limits.RETRY_FIRST_MS
        async with self._reporting:
            while True:
                try:
                    answer = await self._calls.report(request)
                    break
                except NoAnswerError as error:
                    self._miss("report", error)
                except HoldfastError as error:
                    self._end(error)
                    return
                await asyncio.sleep(delay_ms / 1_000)
                delay_ms = min(2 * delay_ms, limits.RETRY_MS_MAX)
        self._hit("report")
        if not answer.accepted:
            self._log.info("report_refused", job_id=row.job_id, token=row.token, reason=answer.reason)
        self._holding.drop([row.token])
        self._acknowledge(report_id, 1)

    # -- keeping time

    async def _beat(self, released: dict[int, str]) -> None:
        running, sent_s = self._holding.named(), time.monotonic()
        try:
            answer = await self._calls.heartbeat(running, released=released)
        except NoAnswerError as error:
            self._miss("heartbeat", error)
        except HoldfastError as error:
            self._end(error)
            raise
        else:
            self._take(answer, running, sent_s)

    def _take(self, answer: pb.WorkerHeartbeatResponse, running: Collection[int], sent_s: float) -> None:
        """What the answer to a heartbeat means for what it named."""
        self._hit("heartbeat")
        self._lease_s = answer.lease_ms / 1_000
        revoked = [lease.token for lease in answer.revoked]
        self._holding.extend(set(running).difference(revoked), sent_s + self._lease_s)
        self._revoke(revoked)
        self._news.cancels += self._holding.of_jobs(answer.cancel)
        self._heard.set()
        self._watch_time()

    # -- ending

    def _end(self, error: HoldfastError) -> None:
        super()._end(error)
        self._is_draining = True
        self._stirred.set()
