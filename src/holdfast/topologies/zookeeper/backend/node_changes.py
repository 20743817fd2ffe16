"""Makes one change: creates missing parent nodes, and resolves a reply that was lost with the connection.

Invariants:
- A change is decided again from the record as it is now before each retry.
- If a change had no reply, the record, read after `sync`, shows whether the change was made; it is retried only if not.
"""

import contextlib
from collections.abc import Awaitable, Callable, Iterator

from holdfast.core.lifecycle import QUEUED, RUNNING
from holdfast.errors import InternalError, UnavailableError
from holdfast.observe.logs import get_logger
from holdfast.topologies.zookeeper.backend.connection import EnsembleConnection
from holdfast.topologies.zookeeper.backend.job_transactions import JobTransactions
from holdfast.topologies.zookeeper.backend.lanes import NodeLanes
from holdfast.topologies.zookeeper.backend.paths import NodeLane
from holdfast.topologies.zookeeper.backend.records import (
    Execution,
    Record,
    VersionedRecord,
    encode,
    executions_of,
    kept_of,
)
from holdfast.topologies.zookeeper.backend.transactions import (
    Check,
    Create,
    Put,
    ReadNode,
    RefusedError,
    Step,
    StepFailure,
    TransactionResult,
)
from holdfast.topologies.zookeeper.backend.transition_log import log_changed

#: The record after a change and the steps of the change; None if there is nothing to change.
Decided = tuple[Record, list[Step]] | None
Decide = Callable[[VersionedRecord], Awaitable[Decided]]

#: Maximum number of tries, while other processes change the record or delete parent nodes.
_TRIES_MAX = 20
#: Maximum number of stored attempts of a job, without its last one.
_EXECUTIONS_MAX = 10


@contextlib.contextmanager
def left_alone_if_damaged(job_id: str) -> Iterator[None]:
    """Logs and skips a record that cannot be read, so that other jobs are processed."""
    try:
        yield
    except InternalError as error:
        get_logger().warning("job_unreadable", job_id=job_id, message=error.message)


class NodeChanges:
    """Changes jobs over one connection."""

    def __init__(self, connection: EnsembleConnection) -> None:
        self.connection = connection
        self.paths = connection.paths
        self.lanes = NodeLanes(connection)
        self.transactions = JobTransactions(connection.paths, self.lanes)
        paths = connection.paths
        self._dated = tuple(f"{top}/" for top in (paths.delayed, paths.ended, paths.failed, paths.index))

    async def read(self, job_id: str) -> VersionedRecord | None:
        """Reads the record as it is now, whichever server answers."""
        node = await self._node(job_id)
        return None if node is None else kept_of(node)

    async def _node(self, job_id: str) -> ReadNode | None:
        def ask() -> Awaitable[ReadNode | None]:
            self.connection.sync()
            return self.connection.get(self.paths.record(job_id))

        return await self.connection.repeat(ask)

    async def change(
        self, stored: VersionedRecord, decide: Decide, reason: str = "", detail: str = ""
    ) -> Record | None:
        """Decides and writes until the change is made; None if `decide` finds nothing to change or the job is gone.

        A transition is logged, with the reason. An attempt that did not end the job is stored, with the detail.
        `UnavailableError`: it is unknown whether the change was made.
        """
        for _ in range(_TRIES_MAX):
            decided = await decide(stored)
            if decided is None:
                return None
            changed, steps = decided
            try:
                steps = [*steps, *await self._executions(stored.record, changed, reason, detail)]
                await self.transact(steps, changed.lane)
            except RefusedError as error:
                refused = error
            except UnavailableError:
                if await self._was_made(stored, changed):
                    log_changed(stored.record, changed, reason)
                    return changed
                refused = None
            else:
                log_changed(stored.record, changed, reason)
                return changed
            if refused is not None and isinstance(refused.step, Check):
                self.lanes.forget(changed.lane)
            found = await self.read(stored.record.id)
            if found is None:
                return None
            stored = found
        raise UnavailableError(f"too many concurrent changes of job {stored.record.id}; try again", reason="CONTENDED")

    async def forget(self, stored: VersionedRecord, note: str) -> None:
        """Deletes all nodes of an ended job, unless another process was faster."""
        record = stored.record
        may_have = record.grants > record.is_reported
        has_executions = may_have and await self.connection.exists(self.paths.executions(record.id)) is not None
        with contextlib.suppress(RefusedError):
            await self.connection.transact(self.transactions.forget(stored, note, has_executions=has_executions))

    async def _executions(self, before: Record, after: Record, reason: str, detail: str) -> list[Step]:
        """Returns the step that stores an attempt, if the change ends an attempt and not the job.

        The version of the record guards this node as well: it changes only together with the record.
        """
        if before.state != RUNNING or after.state != QUEUED:
            return []
        path = self.paths.executions(before.id)
        node = await self.connection.get(path)
        ended = Execution(
            token=before.token,
            worker=before.worker,
            started_ms=before.started_ms,
            ended_ms=max(self.connection.now_ms(), before.started_ms),
            is_failure=after.failures > before.failures,
            is_spent=after.losses > before.losses,
            reason=reason,
            detail=detail,
        )
        data = encode([*executions_of(node), ended][-_EXECUTIONS_MAX:])
        return [Create(path, data) if node is None else Put(path, data)]

    async def transact(self, steps: list[Step], lane: NodeLane) -> TransactionResult:
        """Runs the steps, and creates missing parents; `RefusedError` if they fail for another reason."""
        for step in steps:
            if isinstance(step, Create) and step.path.startswith(self._dated):
                await self.lanes.ensure_minute(step.path)
        for _ in range(_TRIES_MAX):
            try:
                return await self.connection.transact(steps)
            except RefusedError as error:
                if not await self.mend(error, lane):
                    raise
        return await self.connection.transact(steps)

    async def mend(self, error: RefusedError, lane: NodeLane) -> bool:
        """Creates the parent that a step lacked; returns False if the step failed for another reason."""
        step = error.step
        if not isinstance(step, Create) or error.why is not StepFailure.MISSING:
            return False
        if step.path.startswith(f"{self.paths.waiting}/"):
            await self.lanes.ensure(lane)
            return True
        if step.path.startswith(self._dated):
            self.lanes.forget_minute(step.path)
            await self.lanes.ensure_minute(step.path)
            return True
        return False

    async def _was_made(self, stored: VersionedRecord, changed: Record) -> bool:
        """Waits for the connection, and reads whether the change was made."""
        await self.connection.connected()
        node = await self._node(stored.record.id)
        return node is not None and node.stat.version == stored.version + 1 and node.data == encode(changed)
