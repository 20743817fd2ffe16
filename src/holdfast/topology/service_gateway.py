"""The gateway service as one process serves it: what clients reach."""

from holdfast.backends.microservices.jobs import ServiceJobs
from holdfast.backends.microservices.owners import Owners
from holdfast.client.channel import open_channel
from holdfast.gateway.backend import Backend
from holdfast.gateway.grpc.server import GrpcServer
from holdfast.proto.holdfast_pb2 import Welcome
from holdfast.services.callers import credential
from holdfast.services.environment import GatewayEnvironment
from holdfast.services.roles import GRACE_S


class Gateway:
    """What clients reach: the frozen contract and the product's own, over the owners."""

    def __init__(self, environment: GatewayEnvironment, *, has_reflection: bool) -> None:
        self._port = environment.port
        self._owners = Owners(
            job=open_channel(environment.job_address),
            queue=open_channel(environment.queue_address),
            result=open_channel(environment.result_address),
            metadata=credential(environment.token),
        )
        backend = Backend(ServiceJobs(self._owners), name="microservices")
        # What a worker would be told first is told to none: they connect to the coordinator.
        self._server = GrpcServer(backend, Welcome(), has_reflection=has_reflection)

    async def start(self, host: str) -> str:
        """Listens, whether the owners are there or not."""
        return await self._server.start(host, self._port)

    async def stop(self) -> None:
        """Calls under way are answered."""
        await self._server.stop(GRACE_S)
        await self._owners.close()
