"""A worker's session: its leases, its directives and its end. `BidLoop` bids, and `LeaseOutcomes` writes outcomes.

Invariants:
- A lease is held from the bid until its outcome is written, it is handed back, or it is revoked. It is revoked by this
  process's own clock if the worker sent no heartbeat, or the ensemble did not reply, for the length of a lease: the
  worker must not act on it any more, whatever the state of the ensemble.
- However the session ends, its connection is closed, so that no bid outlives it.
- Between `is_drained` and the hand-back of `close` no bid is in progress. A bid is in doubt only if the ensemble was
  unreachable for longer than the time limit of a call, and such a bid ends with the session.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Sequence

from holdfast import limits
from holdfast.core.commands import ReportRow
from holdfast.core.workers import beat_ms
from holdfast.errors import AbortedError, UnavailableError
from holdfast.ports import Introduction
from holdfast.topologies.zookeeper import ZOOKEEPER
from holdfast.topologies.zookeeper.backend.bid_loop import BidLoop
from holdfast.topologies.zookeeper.backend.bidder import Bidder, MadeBid
from holdfast.topologies.zookeeper.backend.connection import EnsembleConnection, SessionPhase
from holdfast.topologies.zookeeper.backend.kazoo_bridge import WatchEvent
from holdfast.topologies.zookeeper.backend.leader_election import LeaderElection
from holdfast.topologies.zookeeper.backend.lease_outcomes import LeaseOutcomes
from holdfast.topologies.zookeeper.backend.node_changes import NodeChanges
from holdfast.topologies.zookeeper.backend.records import VersionedRecord
from holdfast.topologies.zookeeper.backend.session_start import SessionStart
from holdfast.topologies.zookeeper.backend.steward import Steward
from holdfast.topologies.zookeeper.backend.transactions import Check, Delete
from holdfast.topologies.zookeeper.backend.worker_nodes import kind_of
from holdfast.worker.polling_session import PollingSession

#: Maximum number of remembered cancels; most are of jobs that have ended.
_ASKED_MAX = 10_000
#: How long `close` tries to hand leases back; a steward recovers the others after the session.
_CLOSE_S = 3.0


class BidSession(PollingSession):
    """One session, which `BidWork` opens."""

    def __init__(self, connection: EnsembleConnection, introduction: Introduction, lease_ms: int, process: str) -> None:
        super().__init__(introduction.worker_id, ZOOKEEPER)
        self._connection, self._paths = connection, connection.paths
        self._node_changes = NodeChanges(connection)
        self._introduction = introduction
        self._session_start = SessionStart(self._node_changes, introduction, process)
        self._session_id = connection.session_id
        self._lease_ms = min(lease_ms, connection.session_ms)
        #: The records of the held leases by token, as last written or read.
        self._running: dict[int, VersionedRecord] = {}
        self._reporting: set[int] = set()
        #: Tasks that hand leases back, even if their caller no longer waits.
        self._returning: set[asyncio.Task[None]] = set()
        self._ending: asyncio.Task[None] | None = None
        #: Jobs with a cancel request, which may come before the reply to the bid.
        self._asked: set[str] = set()
        self._is_closed = self._is_lost = False
        self._bidding: asyncio.Task[None] | None = None
        kind = kind_of(introduction)
        self._bidder = Bidder(self._node_changes, kind, self._worker)
        line = LeaderElection(connection, self._paths.line(kind.name))
        self._bid_loop = BidLoop(connection, self._bidder, line, tell=self._deliver)
        self._lease_outcomes = LeaseOutcomes(self._node_changes, self._worker)
        self._steward = Steward(connection)

    async def start(self) -> None:
        """Begins the session with the leases that are still held; `UnavailableError` if the ensemble is unreachable."""
        sent_s = time.monotonic()
        self._connection.when_changed.append(self._changed)
        self._bidder.fence = await self._session_start.come()
        stored = await self._session_start.sort_out()
        self._refuse_if_over()  # the session may have expired meanwhile
        for token, each in stored.items():
            self._running[token] = each
            self._held_leases.add(token, each.record.id, sent_s + self._lease_s, is_delivered=True)
        self._pending.revoked += set(self._introduction.held).difference(stored)
        self._pending.lease_ms = self._lease_ms
        self._pending.heartbeat_ms = beat_ms(limits.HEARTBEAT_MS, self._lease_ms)
        self._pending.cancels += [token for token, each in stored.items() if each.record.cancel_requested]
        self._watch_time()
        self._bidding = self._spawn(self._bid())
        self._spawn(_hear_cancels(self._connection, self._worker, self._bidder.fence, self._hear_cancels))
        self._spawn(self._attend())
        await self._steward.start()

    @property
    def _lease_s(self) -> float:
        return self._lease_ms / 1_000

    @property
    def is_waiting(self) -> bool:
        """Whether it waits in its lines for an event, and sends no requests meanwhile."""
        return self._bid_loop.is_waiting and self._steward.is_waiting

    # -- called by the worker

    async def want(self, count: int) -> None:
        """Adds credit for this many more leases."""
        self._refuse_if_over()
        self._bid_loop.want(count)

    async def report(self, report_id: int, rows: Sequence[ReportRow]) -> None:
        """Writes each row in its own transaction, all concurrently."""
        self._begin_report(report_id, rows)
        for row in rows:
            self._spawn(self._finish(report_id, row))

    async def extend(self) -> None:
        """Extends all leases if the ensemble confirms the session; without a reply they are not extended."""
        self._refuse_if_over()
        named = self._held_leases.named()
        if not named:
            return
        try:
            await self._connection.connected()
            sent_s = time.monotonic()
            self._connection.sync()  # a server without a leader might not know that the session has expired
            stat = await self._connection.exists(self._paths.worker(self._worker))
        except UnavailableError as error:
            self._log.info("heartbeat_unanswered", message=error.message)
            return
        if stat is not None and stat.owner == self._session_id:
            self._held_leases.extend(named, sent_s + self._lease_s)

    async def release(self, tokens: Collection[int]) -> None:
        """Hands leases back at once; any worker may take the jobs."""
        self._refuse_if_over()
        await asyncio.shield(self._return(self._held_leases.drop(tokens), "released", is_spent=False))

    async def drain(self) -> None:
        """Stops bidding; `is_drained` follows once no bid is in progress."""
        self._refuse_if_over()
        self._is_draining = True
        self._bid_loop.drain()

    async def close(self) -> None:
        """Hands back the held leases, unless the session has failed: then the next session may name them."""
        has_failed, is_orderly = self._failure is not None, self._is_draining
        self._end(UnavailableError("the session was closed"))
        self._is_closed = True
        self._bid_loop.drain()
        if self._timer is not None:
            self._timer.cancel()
        try:
            async with asyncio.timeout(_CLOSE_S):
                if self._bidding is not None and self._connection.phase is SessionPhase.CONNECTED:
                    await asyncio.wait([self._bidding])  # jobs of its last bids are handed back with the others
                if self._returning:
                    await asyncio.wait(self._returning)
                if not self._is_lost:
                    unheard = self._held_leases.drop(self._held_leases.undelivered())
                    await self._hand_back(unheard, "never begun", is_spent=False)
                if not has_failed:
                    held = self._held_leases.drop(self._held_leases.named())
                    # After an orderly end the jobs are stopped; otherwise one of them may have ended the worker.
                    await self._hand_back(held, "its worker left", is_spent=not is_orderly)
                    await self._leave()
        except TimeoutError:
            self._log.info("close_unheard", message="the ensemble did not answer; the leases will be recovered")
        finally:
            self._ending = self._loop.create_task(self._end_all())
            await asyncio.shield(self._ending)

    async def _end_all(self) -> None:
        await self._steward.stop()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._connection.close()

    async def _leave(self) -> None:
        """Deletes the worker's nodes if they are empty; refused if they belong to a newer session."""
        if self._bidding is None:  # the session never began: the nodes may be those of an older one
            return
        paths, worker = self._paths, self._worker
        held = Delete(paths.held_by(worker), self._bidder.fence.version)
        try:
            await self._connection.transact([held, Delete(paths.worker(worker)), Delete(paths.asked_of(worker))])
        except Exception:  # noqa: BLE001 - a steward deletes the nodes later
            self._log.debug("left_behind")

    # -- bidding

    async def _bid(self) -> None:
        await self._bid_loop.run()
        self._pending.is_drained = True
        self._heard.set()
        try:
            await self._bid_loop.leave()
        except UnavailableError:
            self._log.debug("line_not_left")

    def _deliver(self, taken: list[MadeBid]) -> None:
        for each in taken:
            token, record = each.assignment.token, each.kept.record
            self._running[token] = each.kept
            self._held_leases.add(token, record.id, each.sent_s + self._lease_s, is_delivered=False)
            self._pending.leases.append(each.assignment)
            if record.cancel_requested or record.id in self._asked:
                self._pending.cancels.append(token)
        self._heard.set()
        self._watch_time()

    # -- outcomes

    async def _finish(self, report_id: int, row: ReportRow) -> None:
        token = row.token or next(iter(self._held_leases.of_jobs([row.job_id])), 0)
        stored = self._running.get(token)
        if (
            stored is None
            or stored.record.id != row.job_id
            or token in self._reporting
            or token not in self._held_leases.named()
        ):
            self._log.info("report_refused", job_id=row.job_id, token=row.token, reason="STALE_TOKEN")
        else:
            self._reporting.add(token)
            try:
                if not await self._lease_outcomes.report(stored, row):
                    self._log.info("report_refused", job_id=row.job_id, token=token, reason="STALE_TOKEN")
            finally:
                self._reporting.discard(token)
            self._held_leases.drop([token])
            self._running.pop(token, None)
            self._asked.discard(row.job_id)
        self._acknowledge(report_id, 1)

    # -- handing back and losing leases

    def _return(self, tokens: Collection[int], why: str, *, is_spent: bool) -> asyncio.Task[None]:
        """Hands leases back, even if the caller is canceled."""
        task = self._spawn(self._hand_back(tokens, why, is_spent=is_spent))
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)
        return task

    async def _hand_back(self, tokens: Collection[int], why: str, *, is_spent: bool) -> None:
        held = [stored for token in tokens if (stored := self._running.pop(token, None)) is not None]
        self._bidder.forget()
        await asyncio.gather(*(self._lease_outcomes.give_back(stored, why, is_spent=is_spent) for stored in held))

    def _lose(self, tokens: Collection[int], why: str) -> list[int]:
        gone = self._revoke(tokens)
        if gone:
            self._log.warning("leases_over", leases=len(gone), message=why)
        return gone

    def _may_tell(self) -> bool:
        """Delivers changes also after an expiry, so that the worker receives revocations before the failure."""
        return not self._is_closed

    def _watch_time(self) -> None:
        if self._failure is None:
            super()._watch_time()

    def _look_at_time(self) -> None:
        # The ensemble decides about leases that are being reported, so they do not expire here.
        self._held_leases.extend(self._reporting, time.monotonic() + self._lease_s)
        super()._look_at_time()

    def _give_up(self, expired: Collection[int]) -> None:
        over = self._lose(expired, "no heartbeat was answered within their time")
        if over:
            self._return(over, "no heartbeat", is_spent=True)

    # -- events of the ensemble

    def _hear_cancels(self, job_ids: list[str]) -> None:
        """Passes cancels on to the worker, and remembers them for jobs whose bid has no reply yet."""
        tokens = self._held_leases.of_jobs(job_ids)
        if tokens:
            self._pending.cancels += tokens
            self._heard.set()
        if len(self._asked) > _ASKED_MAX:
            self._asked.clear()
        self._asked.update(job_ids)

    async def _attend(self) -> None:
        await _until_superseded(self._connection, self._worker, self._session_id)
        if self._is_closed:
            return
        self._log.warning("worker_superseded", message="two workers have this id")
        message = f"a newer worker called {self._worker!r} took over; give every worker an id of its own"
        self._end(AbortedError(message, reason="WORKER_SUPERSEDED"))

    def _changed(self, phase: SessionPhase) -> None:
        if phase is SessionPhase.LOST and not self._is_closed:
            self._is_lost = True
            self._lose(list(self._held_leases.named()), "the session with ZooKeeper has expired")
            self._end(_expired())
            for task in self._tasks:
                task.cancel()


def _expired() -> UnavailableError:
    return UnavailableError("the session with ZooKeeper has expired", reason="SESSION_EXPIRED")


async def _hear_cancels(
    connection: EnsembleConnection, worker: str, fence: Check, heard: Callable[[list[str]], None]
) -> None:
    """Reads cancel requests until it is canceled: each is a node with the id of the job, and one watch covers all.

    A request is deleted once `heard` was called, unless a newer session of this worker exists, which then reads it.
    Each read sets the watch for the next one, and a lost connection sets its event, so no request is missed.
    """
    path, watch_event = connection.paths.asked_of(worker), WatchEvent()
    while True:
        watch_event.clear()
        try:
            names = await connection.children(path, watch_event) or []
        except UnavailableError:
            await connection.back()
            continue
        heard(names)
        for name in names:
            connection.transact([fence, Delete(f"{path}/{name}")])
        await watch_event.wait()


async def _until_superseded(connection: EnsembleConnection, worker: str, session_id: int) -> None:
    """Returns when a newer session of this worker has taken the worker's node, which a watch reports."""
    path, watch_event = connection.paths.worker(worker), WatchEvent()
    while True:
        watch_event.clear()
        try:
            stat = await connection.exists(path, watch_event)
        except UnavailableError:
            await connection.back()
            continue
        if stat is None or stat.owner != session_id:
            return
        await watch_event.wait()
