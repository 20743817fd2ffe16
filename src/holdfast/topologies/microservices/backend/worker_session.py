"""A worker's session over unary calls: it fetches leases while there is credit, and its heartbeats name held leases.

Invariants:
- A call without a reply is repeated, or the next heartbeat shows its effect; the session continues meanwhile.
- A lease that the coordinator may consider expired is revoked here by this process's own clock, even during an outage.
- Between `is_drained` and the goodbye of `close` no fetch is in progress, so no lease can be granted unnoticed.
"""

import asyncio
import time
from collections.abc import Collection, Sequence

from holdfast import limits
from holdfast.core.commands import ReportRow
from holdfast.errors import HoldfastError, UnavailableError
from holdfast.ports import Introduction
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.server.grpc.internal_messages import assignment_of, report_request
from holdfast.topologies.microservices import MICROSERVICES
from holdfast.topologies.microservices.backend.coordinator_client import CoordinatorCalls, NoAnswerError
from holdfast.worker.polling_session import PollingSession

#: Maximum numbers of concurrent calls of each kind.
_FETCHES_MAX = 16
_REPORTS_MAX = 16


class UnarySession(PollingSession):
    """One session, which `start` opens. Fetches and reports run as tasks of the session."""

    def __init__(self, calls: CoordinatorCalls, introduction: Introduction, heartbeat_ms: int = 0) -> None:
        """`heartbeat_ms` is the longest interval between heartbeats; 0: the interval that the coordinator sets."""
        super().__init__(introduction.worker_id, MICROSERVICES)
        self._calls = calls
        self._introduction = introduction
        self._heartbeat_ms = heartbeat_ms
        self._lease_s = 0.0
        #: The credit: leases that are requested and not granted yet.
        self._room = 0
        self._stirred = asyncio.Event()
        self._reporting = asyncio.Semaphore(_REPORTS_MAX)
        self._filling: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Sends the first heartbeat, which names the leases that are still held."""
        held, sent_s = self._introduction.held, time.monotonic()
        answer = await self._calls.heartbeat(held, is_arriving=True)
        self._lease_s = answer.lease_ms / 1_000
        for token, job_id in held.items():
            self._held_leases.add(token, job_id, sent_s + self._lease_s, is_delivered=True)
        beat_ms = answer.next_heartbeat_in_ms
        self._pending.lease_ms = answer.lease_ms
        self._pending.heartbeat_ms = min(self._heartbeat_ms or beat_ms, beat_ms)
        self._take(answer, held, sent_s)
        self._filling = self._spawn(self._fill())

    # -- called by the worker

    async def want(self, count: int) -> None:
        """Adds credit for this many more leases."""
        self._refuse_if_over()
        self._room += count
        self._stirred.set()

    async def report(self, report_id: int, rows: Sequence[ReportRow]) -> None:
        """Sends one call per row, concurrently."""
        self._begin_report(report_id, rows)
        for row in rows:
            self._spawn(self._send(report_id, row))

    async def extend(self) -> None:
        """Sends a heartbeat; its reply names the jobs to stop and the revoked leases."""
        self._refuse_if_over()
        await self._beat({})

    async def release(self, tokens: Collection[int]) -> None:
        """Hands leases back at once; if the message is lost, later heartbeats do not name them."""
        self._refuse_if_over()
        jobs = self._held_leases.named()
        await self._beat({token: jobs[token] for token in self._held_leases.drop(tokens)})

    async def drain(self) -> None:
        """Stops fetching; `is_drained` follows once no fetch is in progress."""
        self._refuse_if_over()
        self._is_draining = True
        self._stirred.set()

    async def close(self) -> None:
        """Sends the goodbye, unless the session has failed: then the next session may name the held leases."""
        has_failed, is_orderly = self._failure is not None, self._is_draining
        self._end(UnavailableError("the session was closed"))
        self._is_draining = True
        self._stirred.set()
        if self._filling is not None:
            await asyncio.wait([self._filling])  # leases of its last fetches are handed back with the others
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
        """Sends the goodbye: after a drain all leases are handed back without a loss, else only undelivered ones."""
        named = self._held_leases.named()
        released = named if is_orderly else self._held_leases.undelivered()
        running = {token: job_id for token, job_id in named.items() if token not in released}
        try:
            await self._calls.heartbeat(running, released=released, is_leaving=True)
        except HoldfastError as error:
            self._log.info("left_unheard", leases=len(named), message=error.message)

    # -- fetching

    async def _fill(self) -> None:
        """Fetches with doubling concurrency while every call gets a lease, otherwise one call after each pause."""
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
        self._pending.is_drained = True
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
                self._held_leases.add(answer.token, answer.job_id, sent_s + self._lease_s, is_delivered=False)
                self._watch_time()
            return answer
        return pb.FetchWorkResponse(retry_after_ms=limits.FETCH_RETRY_MS_DEFAULT)

    def _deliver(self, granted: list[pb.FetchWorkResponse]) -> None:
        if granted:
            self._pending.leases += map(assignment_of, granted)
            self._heard.set()

    async def _pause(self, hint_ms: int) -> None:
        """Waits for the time that the coordinator suggests, or until `want`, `drain` or the end of the session."""
        hint_ms = max(limits.FETCH_RETRY_MS_MIN, min(hint_ms, limits.FETCH_RETRY_MS_MAX))
        timer = self._loop.call_later(hint_ms / 1_000, self._stirred.set)
        await self._stirred.wait()
        timer.cancel()

    # -- reporting

    async def _send(self, report_id: int, row: ReportRow) -> None:
        """Sends a report until it has a reply; the lease is over then, accepted or not."""
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
        self._held_leases.drop([row.token])
        self._acknowledge(report_id, 1)

    # -- heartbeats

    async def _beat(self, released: dict[int, str]) -> None:
        running, sent_s = self._held_leases.named(), time.monotonic()
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
        """Applies the reply to a heartbeat: extends or revokes the named leases, and passes cancels on."""
        self._hit("heartbeat")
        self._lease_s = answer.lease_ms / 1_000
        revoked = [lease.token for lease in answer.revoked]
        self._held_leases.extend(set(running).difference(revoked), sent_s + self._lease_s)
        self._revoke(revoked)
        self._pending.cancels += self._held_leases.of_jobs(answer.cancel)
        self._heard.set()
        self._watch_time()

    # -- ending

    def _end(self, error: HoldfastError) -> None:
        super()._end(error)
        self._is_draining = True
        self._stirred.set()
