"""A worker's session in the pipeline: it pulls tickets from the queue processes, and starts jobs in the store.

Invariants:
- The job of a ticket runs only under a lease of the store; the ticket is deleted once the store has replied.
- A call without a reply is repeated, or the next heartbeat shows its effect; the session continues meanwhile.
- A lease that the store may consider expired is revoked here by this process's own clock, even during an outage.
- Between `is_drained` and the releases of `close` no start is in progress, so no lease can be granted unnoticed.
"""

import asyncio
import secrets
import time
from collections.abc import Collection, Sequence

from holdfast.core.commands import ReportRow
from holdfast.errors import AbortedError, HoldfastError, UnavailableError
from holdfast.ports import Introduction
from holdfast.topologies.pipeline import PIPELINE
from holdfast.topologies.pipeline.backend.coordinator_client import CoordinatorClient
from holdfast.topologies.pipeline.backend.http_client import RoleConnections
from holdfast.topologies.pipeline.backend.messages import ASSIGNED, REPLACED, AssignmentReply
from holdfast.topologies.pipeline.backend.outcome_outbox import Numbered, OutcomeOutbox
from holdfast.topologies.pipeline.backend.role_loops import canceled, ended
from holdfast.topologies.pipeline.backend.store import UNMOVED_PART, LeaseStore
from holdfast.topologies.pipeline.backend.ticket_discarder import TicketDiscarder
from holdfast.topologies.pipeline.backend.ticket_puller import Found, TicketPuller
from holdfast.topologies.pipeline.backend.work_stats import WorkConfig, WorkStats
from holdfast.worker.polling_session import PollingSession

#: Pause after a failed start.
_START_PAUSE_S = 0.25


class PipelineSession(PollingSession):
    """One session, which `start` opens. Pulling, reporting and heartbeats run as tasks of the session."""

    _other = "store"

    def __init__(
        self, runs: LeaseStore, lines: RoleConnections, introduction: Introduction, config: WorkConfig, stats: WorkStats
    ) -> None:
        super().__init__(introduction.worker_id, PIPELINE)
        self._runs = runs
        self._introduction = introduction
        self._config = config
        self._stats = stats
        #: Leases whose outcome is being reported.
        self._reporting: set[int] = set()
        #: Whether the store may have started jobs that this session does not know of.
        self._is_unsure = False
        #: Distinguishes this session from others of the same worker.
        self._session = secrets.token_hex(8)
        #: The tasks of the heartbeats and of the idle connection, which end after the others.
        self._beating: asyncio.Task[None] | None = None
        self._staying: asyncio.Task[None] | None = None
        self._deleting = TicketDiscarder(lines, "/queue/delete")
        self._puller = TicketPuller(lines, introduction, self._begin_jobs)
        self._reporter = OutcomeOutbox(runs, self._worker, self._answered, lambda error: self._miss("report", error))
        self._coordinator = CoordinatorClient(
            lines,
            config.coordinator,
            introduction,
            self._session,
            lambda: len(self._held_leases.named()),
            self._place,
            lambda session: runs.live(self._worker, session),
        )

    async def start(self, *, is_back: bool = False) -> None:
        """Begins the session with the leases that are still held; `UnavailableError` if the store cannot be reached.

        If the worker's process `is_back`, it did not die: the leases that it does not name count as no loss.
        """
        held, lease_ms, sent_s = self._introduction.held, self._config.lease_ms, time.monotonic()
        kept = await self._runs.arrive(self._worker, held, lease_ms, session=self._session, is_spent=not is_back)
        for token in kept:
            self._held_leases.add(token, held[token], sent_s + lease_ms / 1_000, is_delivered=True)
        self._pending.revoked += set(held).difference(kept)
        self._pending.lease_ms, self._pending.heartbeat_ms = lease_ms, self._config.heartbeat_ms
        await self._coordinator.begin()
        self._watch_time()
        self._spawn(self._pull())
        self._beating = self._spawn(self._coordinator.run())
        self._staying = self._spawn(self._coordinator.stay())
        self._spawn(self._reporter.run())

    # -- called by the worker

    async def want(self, count: int) -> None:
        """Adds credit for this many more leases."""
        self._refuse_if_over()
        self._puller.want(count)

    async def report(self, report_id: int, rows: Sequence[ReportRow]) -> None:
        """Adds the rows to the outbox, which sends them in batches."""
        self._begin_report(report_id, rows)
        self._reporting.update(row.token for row in rows)
        self._reporter.add(report_id, rows)

    async def extend(self) -> None:
        """Extends every lease; the reply has the canceled jobs and the valid leases."""
        self._refuse_if_over()
        named, sent_s = self._held_leases.named(), time.monotonic()
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
        # The store does not extend a lease that has most of its time left.
        self._held_leases.extend(heard.held, sent_s + lease_ms * (1 - UNMOVED_PART) / 1_000)
        # A lease that is being reported may already be over in the store.
        self._revoke(set(named).difference(heard.held, self._reporting))
        self._pending.cancels += heard.cancels
        self._heard.set()
        self._watch_time()

    async def release(self, tokens: Collection[int]) -> None:
        """Hands leases back at once; if the call fails, heartbeats no longer extend them."""
        self._refuse_if_over()
        await self._hand_back(self._held_leases.drop(tokens), is_spent=False)

    async def drain(self) -> None:
        """Stops taking tickets; `is_drained` follows once no start is in progress."""
        self._refuse_if_over()
        self._is_draining = True
        self._puller.end()
        self._spawn(self._coordinator.drain())

    async def close(self) -> None:
        """Hands back the held leases, unless the session has failed: then the next session may name them."""
        has_failed, is_orderly = self._failure is not None, self._is_draining
        self._end(UnavailableError("the session was closed"))
        self._puller.end()
        self._reporter.end()
        try:
            # Leases of the last start are handed back with the others.
            await ended(self._tasks - {self._beating, self._staying})
            if self._timer is not None:
                self._timer.cancel()
            unheard = self._held_leases.drop(self._held_leases.undelivered())
            await self._hand_back(unheard, is_spent=False)
            if not has_failed:
                # After a drain the jobs are stopped; otherwise one of them may have ended the worker.
                await self._hand_back(self._held_leases.drop(self._held_leases.named()), is_spent=not is_orderly)
                # A heartbeat whose reply comes after the goodbye would request an assignment again.
                await canceled(self._beating)
                await self._coordinator.leave()
        finally:
            # Not earlier: if the connection drops while leases are held, the worker is considered lost.
            await canceled(self._beating, self._staying)
        await self._deleting.flush()
        self._stats.leave()

    # -- from tickets to leases

    async def _pull(self) -> None:
        await self._puller.run()
        self._pending.is_drained = True
        self._heard.set()

    def _place(self, placed: AssignmentReply) -> None:
        """Applies a response of the coordinator: new queue processes, a drain request, or that it was replaced."""
        if placed.status == REPLACED:
            self._log.warning("worker_superseded", message="two workers have this id")
            message = f"a newer worker called {self._worker!r} took over; give every worker an id of its own"
            self._end(AbortedError(message, reason="WORKER_SUPERSEDED"))
        elif placed.status == ASSIGNED:
            self._puller.place(placed.high, placed.normal)
            self._stats.queues = [*placed.high, *placed.normal]
            if placed.drain and not self._is_draining:
                self._pending.is_drain_asked = True
                self._heard.set()

    async def _begin_jobs(self, found: Found) -> int:
        """Starts the jobs of these tickets, and returns how many were started; the other tickets are dropped."""
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
            self._held_leases.add(lease.token, lease.job_id, sent_s + lease_ms / 1_000, is_delivered=False)
        for address, ticket in found:
            self._deleting.add(address, [ticket.job_id])
        self._stats.started += len(started)
        self._stats.dropped += len(found) - len(started)
        if started:
            self._pending.leases += started
            self._heard.set()
            self._watch_time()
        return len(started)

    async def _make_sure(self) -> None:
        """Releases leases that an unanswered start may have taken, because no worker runs them."""
        if self._is_unsure:
            sent_s, named = time.monotonic(), self._held_leases.named()
            kept = await self._runs.arrive(
                self._worker, named, self._config.lease_ms, session=self._session, is_spent=False
            )
            self._held_leases.extend(kept, sent_s + self._config.lease_ms / 1_000)
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
        self._held_leases.drop([row.token])
        self._acknowledge(report_id, 1)
