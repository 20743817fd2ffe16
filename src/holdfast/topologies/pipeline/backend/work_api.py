"""`WorkApi` over a coordinator, queue processes and the store."""

from holdfast.ports import Introduction
from holdfast.topologies.pipeline.backend.http_client import RoleConnections
from holdfast.topologies.pipeline.backend.store import LeaseStore
from holdfast.topologies.pipeline.backend.work_stats import WorkConfig, WorkStats
from holdfast.topologies.pipeline.backend.worker_session import PipelineSession
from holdfast.worker.introduction_checks import check_names


class PipelineWork:
    """Opens sessions. The caller closes the connections and the store."""

    def __init__(self, runs: LeaseStore, lines: RoleConnections, config: WorkConfig) -> None:
        self._runs = runs
        self._lines = lines
        self._config = config
        self.stats = WorkStats()
        #: Workers of this process. If one of them reconnects, the jobs that it does not hold any more did not kill it.
        self._known: set[str] = set()

    async def open(self, introduction: Introduction) -> PipelineSession:
        """Opens a session; the store must be reachable, the coordinator need not be yet."""
        check_names(introduction)
        session = PipelineSession(self._runs, self._lines, introduction, self._config, self.stats)
        await session.start(is_back=introduction.worker_id in self._known)
        self._known.add(introduction.worker_id)
        return session
