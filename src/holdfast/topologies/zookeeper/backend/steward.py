"""The steward: one process, elected among all, that does the maintenance of the ensemble.

Invariants:
- Every action is a transaction that checks what was read, so two stewards at a time, or one that misses events, do no
  harm.
- A round checks everything that may need maintenance, so nothing depends on having seen an event; a watch only starts a
  round.
"""

import asyncio
import contextlib

from holdfast.errors import HoldfastError, UnavailableError
from holdfast.observe.logs import get_logger
from holdfast.topologies.zookeeper.backend.cleaner import NodeCleaner
from holdfast.topologies.zookeeper.backend.connection import EnsembleConnection
from holdfast.topologies.zookeeper.backend.delayed_jobs import DelayedJobs
from holdfast.topologies.zookeeper.backend.kazoo_bridge import WatchEvent
from holdfast.topologies.zookeeper.backend.leader_election import LeaderElection
from holdfast.topologies.zookeeper.backend.lost_workers import LostWorkerRecovery
from holdfast.topologies.zookeeper.backend.node_changes import NodeChanges
from holdfast.topologies.zookeeper.backend.retention import read_retention
from holdfast.topologies.zookeeper.backend.transactions import RefusedError

#: Interval between cleanups.
_TIDY_S = 60.0
#: Pause before the next try when the ensemble did not answer.
_MOMENT_S = 0.05
#: Pause after a round that failed.
_PAUSE_S = 1.0


class Steward:
    """Waits in line, and runs rounds while it is first."""

    def __init__(self, connection: EnsembleConnection) -> None:
        self._connection = connection
        node_changes = NodeChanges(connection)
        self._line = LeaderElection(connection, connection.paths.stewards)
        self._recovery = LostWorkerRecovery(node_changes)
        self._delayed_jobs = DelayedJobs(node_changes)
        self._cleaner = NodeCleaner(node_changes)
        self._tidied_s = 0.0
        self._task: asyncio.Task[None] | None = None
        #: One event for all rounds: kazoo keeps a watch until it fires, and keeps equal watches once.
        self._watch_event = WatchEvent()
        #: Whether it waits for an event or for the next round.
        self.is_waiting = False

    async def start(self) -> None:
        """Starts the task that waits in line."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Leaves the election; the next leader finishes an interrupted round."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.wait([self._task])
        self._task = None
        with contextlib.suppress(HoldfastError, RefusedError, TimeoutError):
            async with asyncio.timeout(_PAUSE_S):
                await self._line.leave()

    async def _run(self) -> None:
        while not self._connection.is_closed:
            try:
                await self._connection.connected()
                watch_event = self._watch_event
                watch_event.clear()
                wait_s = await self._round(watch_event) if await self._line.is_first(watch_event) else None
                self.is_waiting = True
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await watch_event.wait()
                self.is_waiting = False
            except UnavailableError:
                await asyncio.sleep(_MOMENT_S)
            except (HoldfastError, RefusedError) as error:
                get_logger().warning("steward_failed", message=str(error))
                await asyncio.sleep(_PAUSE_S)
            except Exception as error:  # noqa: BLE001 - a bug must not end the maintenance
                get_logger().error("bug", exc_info=error)
                await asyncio.sleep(_PAUSE_S)

    async def _round(self, watch_event: WatchEvent) -> float:
        """Runs one round; returns the seconds until the next one is due if no watch fires."""
        loop = asyncio.get_running_loop()
        await self._recovery.look(watch_event)
        due_s = await self._delayed_jobs.look(watch_event)
        if loop.time() - self._tidied_s >= _TIDY_S or not self._tidied_s:
            await self._cleaner.look(await read_retention(self._connection))
            self._tidied_s = loop.time()
        return min(due_s, self._tidied_s + _TIDY_S - loop.time())
