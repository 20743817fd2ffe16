"""The health of the owners, by the standard health service of gRPC, which needs no token."""

import asyncio
from collections.abc import Mapping, Sequence

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from holdfast.core.condition import Condition
from holdfast.topologies.microservices import SNAPSHOTS_HEALTH

#: Time limit of a check: probes of the gateway wait for it.
_CHECK_S = 0.4
_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class OwnerHealth:
    """Checks the owners over their channels."""

    def __init__(self, channels: Mapping[str, grpc.aio.Channel]) -> None:
        """`channels` are by the name of the owner."""
        self._stubs = {name: health_pb2_grpc.HealthStub(channel) for name, channel in channels.items()}

    @property
    def total(self) -> int:
        """The number of owners."""
        return len(self._stubs)

    async def serving(self) -> int:
        """Returns the number of owners that serve calls."""
        return (await asyncio.gather(*(self._status(name) for name in self._stubs))).count(_SERVING)

    async def conditions(self) -> Sequence[Condition]:
        """Returns the problems of the owners that an operator should check."""
        found = await asyncio.gather(*(self._condition(name) for name in self._stubs))
        return [condition for condition in found if condition is not None]

    async def _condition(self, name: str) -> Condition | None:
        status, snapshots = await asyncio.gather(self._status(name), self._status(name, SNAPSHOTS_HEALTH))
        if status is None:
            return Condition(f"the {name} service does not answer")
        if status != _SERVING:
            return Condition(f"the {name} service is starting or stopping")
        if snapshots == _NOT_SERVING:
            return Condition(f"the journal of the {name} service grows, because making a snapshot failed")
        return None

    async def _status(self, name: str, part: str = "") -> int | None:
        """Returns the status of a part of an owner; None if the owner does not answer, or knows no such part."""
        try:
            answer = await self._stubs[name].Check(health_pb2.HealthCheckRequest(service=part), timeout=_CHECK_S)
        except grpc.aio.AioRpcError:
            return None
        return int(answer.status)
