"""The worker's loop: slots kept full over one session, outcomes kept until they are acknowledged.

Invariants:
- An outcome is held until the backend says that it is durable; a new session sends it again.
- A lease that the backend revoked, or that must have run out since the last heartbeat left, is not worked on any more.
- At most `slots` jobs run at a time; room is offered only for slots that are free.
"""

import asyncio
import random
import time
from collections.abc import Iterator, Mapping
from functools import partial

import msgspec
import structlog

from holdfast import limits
from holdfast.backends.ports import Assignment, Directive, Introduction, WorkApi, WorkSession
from holdfast.core.commands import ReportRow
from holdfast.core.lifecycle import CANCELED, DONE, FAILED
from holdfast.core.model import SIM_TYPE
from holdfast.core.validation import as_text
from holdfast.core.workers import beat_ms
from holdfast.errors import AbortedError, HoldfastError, InvalidArgumentError
from holdfast.worker.config import WorkerConfig
from holdfast.worker.handlers import AttemptFailedError, Handler

__all__ = ["Worker", "WorkerConfig"]


class Worker:
    """Runs jobs until told to stop."""

    def __init__(self, api: WorkApi, handlers: Mapping[str, Handler], config: WorkerConfig) -> None:
        self._api = api
        self._handlers = handlers
        self._config = config
        self._log = structlog.get_logger().bind(worker_id=config.worker_id)
        self._running: dict[int, tuple[Assignment, asyncio.Task[ReportRow]]] = {}
        self._revoked: set[int] = set()
        self._outcomes: dict[int, ReportRow] = {}
        self._reports: dict[int, list[int]] = {}
        self._next_report = 1
        self._freed = 0
        self._changed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()
        #: Since `drain`, no lease is on its way to this session any more.
        self._is_drained = False
        self._lease_ms = limits.LEASE_MS_DEFAULT
        self._heartbeat_ms = limits.HEARTBEAT_MS
        #: When a lease may last have been given or extended.
        self._extended_s = time.monotonic()
        self.attached = asyncio.Event()

    def stop(self) -> None:
        """Once: take no more jobs and finish those that run. Again: hand them back now."""
        if self._stopping.is_set():
            self._hurry_up()
        else:
            self._stopping.set()
            self._changed.set()
            if self._running:
                self._log.info("draining", jobs=len(self._running), message="a second stop hands the jobs back at once")
            asyncio.get_running_loop().call_later(self._config.drain_ms / 1_000, self._hurry_up)

    async def run(self) -> None:
        """Works until stopped; a lost session is opened again with jitter, for as long as it takes."""
        failures = 0
        while True:
            try:
                session = await self._api.open(self._introduction())
            except InvalidArgumentError:
                raise
            except HoldfastError as error:
                failures = await self._back_off(failures, error)
            else:
                try:
                    return await self._serve(session)
                except (AbortedError, InvalidArgumentError):
                    raise
                except HoldfastError as error:
                    failures = await self._back_off(0 if self.attached.is_set() else failures, error)
                finally:
                    self.attached.clear()
                    await session.close()
            if self._hurry.is_set() or (self._stopping.is_set() and not self._running and not self._outcomes):
                return None

    async def _back_off(self, failures: int, error: HoldfastError) -> int:
        """Waits before the next session; when every lease must have run out, gives the jobs up."""
        ceiling_ms = min(limits.RETRY_FIRST_MS * 2**failures, limits.RETRY_MS_MAX)
        # Every try of a long outage would say the same: after the first ones, ever fewer are worth a warning.
        log = self._log.warning if failures.bit_count() <= 1 else self._log.debug
        log("disconnected", message=error.message, tries=failures + 1, retry_in_ms_max=ceiling_ms)
        if (time.monotonic() - self._extended_s) * 1_000 > self._lease_ms:
            self._give_up([*self._running, *self._outcomes])
        waiting = asyncio.create_task(self._hurry.wait())
        await asyncio.wait([waiting], timeout=random.uniform(0, ceiling_ms) / 1_000)
        waiting.cancel()
        return failures + 1

    def _introduction(self) -> Introduction:
        held = {token: assignment.job_id for token, (assignment, _) in self._running.items()}
        held.update({token: row.job_id for token, row in self._outcomes.items()})
        config = self._config
        return Introduction(config.worker_id, frozenset(self._handlers), config.queues, config.slots, held)

    # -- a session

    async def _serve(self, session: WorkSession) -> None:
        await self._take(await session.next())
        self.attached.set()
        self._log.info("attached", lease_ms=self._lease_ms)
        self._reports.clear()
        self._is_drained = False
        self._changed.set()
        await self._report(session, list(self._outcomes))
        if not self._stopping.is_set():
            self._freed = 0  # counted below, with all that is free
            await session.want(self._config.slots - len(self._running))
        tasks = [
            asyncio.create_task(task) for task in (self._listen(session), self._speak(session), self._beat(session))
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _listen(self, session: WorkSession) -> None:
        while True:
            await self._take(await session.next())

    async def _beat(self, session: WorkSession) -> None:
        while True:
            await asyncio.sleep(beat_ms(self._heartbeat_ms, self._lease_ms) / 1_000)
            await session.extend()
            self._extended_s = time.monotonic()

    async def _speak(self, session: WorkSession) -> None:
        """Sends outcomes and free slots as they come, and drains when told to stop."""
        is_draining = False
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._stopping.is_set() and not is_draining:
                is_draining = True
                await session.drain()
            sent = {token for tokens in self._reports.values() for token in tokens}
            await self._report(session, [token for token in self._outcomes if token not in sent])
            if self._freed and not is_draining:
                freed, self._freed = self._freed, 0
                await session.want(freed)
            if self._hurry.is_set() and self._running:
                tokens = list(self._running)
                self._give_up(tokens)
                await session.release(tokens)
            if is_draining and self._is_drained and not self._running and not self._outcomes:
                return

    def _hurry_up(self) -> None:
        self._hurry.set()
        self._changed.set()

    async def _report(self, session: WorkSession, tokens: list[int]) -> None:
        for part in _cut([self._outcomes[token] for token in tokens]):
            report_id = self._next_report
            self._next_report += 1
            self._reports[report_id] = [row.token for row in part]
            await session.report(report_id, part)

    async def _take(self, directive: Directive) -> None:
        self._extended_s = time.monotonic()
        self._lease_ms = directive.lease_ms or self._lease_ms
        self._heartbeat_ms = directive.heartbeat_ms or self._heartbeat_ms
        for report_id in [report_id for report_id in self._reports if report_id <= directive.reported]:
            for token in self._reports.pop(report_id):
                self._outcomes.pop(token, None)
            self._changed.set()
        if directive.is_drained:
            self._is_drained = True
            self._changed.set()
        self._give_up(directive.revoked)
        for token in directive.cancels:
            if token in self._running:
                self._running[token][1].cancel()
        for assignment in directive.leases:
            task = asyncio.create_task(self._attempt(assignment))
            self._running[assignment.token] = (assignment, task)
            task.add_done_callback(partial(self._ended, assignment))

    def _give_up(self, tokens: list[int]) -> None:
        """The leases are no longer ours: their jobs stop, and their outcomes are nobody's business."""
        for token in tokens:
            self._outcomes.pop(token, None)
            if token in self._running:
                self._revoked.add(token)
                self._running[token][1].cancel()

    # -- a job

    async def _attempt(self, assignment: Assignment) -> ReportRow:
        job_id, token, started = assignment.job_id, assignment.token, time.monotonic()
        try:
            row = ReportRow(job_id, token, DONE, await self._call(assignment))
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            is_asked = task is not None and task.cancelling() > 0
            row = ReportRow(job_id, token, CANCELED) if is_asked else _failure(assignment, error)
        except AttemptFailedError as error:
            why = _sendable(error.reason)
            row = ReportRow(job_id, token, FAILED, failure_reason=why, is_retryable=error.is_retryable)
        except BaseException as error:  # noqa: BLE001 - anything: unreported, the job would be held for ever
            row = _failure(assignment, error)
        return msgspec.structs.replace(row, runtime_ms=round((time.monotonic() - started) * 1_000))

    def _ended(self, assignment: Assignment, task: asyncio.Task[ReportRow]) -> None:
        """An attempt is over: reported, unless its lease is no longer ours."""
        token = assignment.token
        del self._running[token]
        if token in self._revoked:
            self._revoked.discard(token)
            self._log.info("given_up", job_id=assignment.job_id, message="its lease is no longer ours")
        else:
            # A task that was stopped before its first step has run nothing, not even `_attempt`.
            is_unrun = task.cancelled()
            self._outcomes[token] = ReportRow(assignment.job_id, token, CANCELED) if is_unrun else task.result()
        self._freed += 1
        self._changed.set()

    async def _call(self, assignment: Assignment) -> bytes:
        """What the handler returns, within the time and the size that are allowed."""
        handler = self._handlers.get(assignment.type)
        if handler is None and assignment.simulated:
            handler = self._handlers.get(SIM_TYPE)
        if handler is None:
            raise AttemptFailedError("NO_HANDLER", is_retryable=False)
        try:
            async with asyncio.timeout(assignment.timeout_ms / 1_000 or None) as limit:
                output = await handler.run(assignment)  # type: ignore[misc]
        except TimeoutError:
            if limit.expired():
                raise AttemptFailedError("TIMEOUT") from None
            raise
        if not isinstance(output, bytes):
            raise AttemptFailedError("OUTPUT_NOT_BYTES", is_retryable=False)
        if len(output) > limits.OUTPUT_BYTES_MAX:
            raise AttemptFailedError("OUTPUT_TOO_LARGE", is_retryable=False)
        return output


def _cut(rows: list[ReportRow]) -> Iterator[list[ReportRow]]:
    """The outcomes in reports that each fit into one message."""
    part: list[ReportRow] = []
    size = 0
    for row in rows:
        size += _weight(row)
        if part and size > limits.BATCH_BYTES_MAX:
            yield part
            part, size = [], _weight(row)
        part.append(row)
    if part:
        yield part


def _weight(row: ReportRow) -> int:
    return len(row.output) + limits.REASON_CHARS_MAX


def _failure(assignment: Assignment, error: BaseException) -> ReportRow:
    try:
        words = str(error)
    except Exception:  # noqa: BLE001 - not even its words need be sound
        words = "it cannot be shown"
    why = _sendable(f"{type(error).__name__}: {words}")
    return ReportRow(assignment.job_id, assignment.token, FAILED, failure_reason=why)


def _sendable(why: str) -> str:
    """A handler's words as a message can carry them: no longer than is kept, and text."""
    return as_text(why[: limits.REASON_CHARS_MAX])
