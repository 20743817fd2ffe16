"""`WorkApi` over the three unary calls of the coordinator service."""

from holdfast.ports import Introduction
from holdfast.topologies.microservices.backend.coordinator_client import CoordinatorCalls
from holdfast.topologies.microservices.backend.owner_clients import Metadata
from holdfast.topologies.microservices.backend.worker_session import UnarySession
from holdfast.topologies.microservices.grpc_channel import open_channel
from holdfast.worker.introduction_checks import check_names


class UnaryWork:
    """Opens sessions with the coordinator at `host:port`. `metadata` authenticates the worker, if required."""

    def __init__(self, target: str, metadata: Metadata = (), heartbeat_ms: int = 0) -> None:
        """`heartbeat_ms` is the longest interval between heartbeats; 0: the interval that the coordinator sets."""
        self._target = target
        self._metadata = metadata
        self._heartbeat_ms = heartbeat_ms

    async def open(self, introduction: Introduction) -> UnarySession:
        """Opens a session with a heartbeat; each session has its own channel, so that none inherits a broken one."""
        check_names(introduction)
        calls = CoordinatorCalls(open_channel(self._target), introduction, self._metadata)
        session = UnarySession(calls, introduction, self._heartbeat_ms)
        try:
            await session.start()
        except BaseException:
            await calls.close()
            raise
        return session
