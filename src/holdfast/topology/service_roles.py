"""Which service each role is, and the one that is more than an owner: the gateway."""

from pathlib import Path

import msgspec

from holdfast.backends.microservices.jobs import ServiceJobs
from holdfast.backends.microservices.owners import Owners
from holdfast.client.channel import open_channel
from holdfast.gateway.backend import Backend
from holdfast.gateway.grpc.server import GrpcServer
from holdfast.proto.holdfast_pb2 import Welcome
from holdfast.services.callers import credential
from holdfast.services.environment import (
    CoordinatorEnvironment,
    Environment,
    GatewayEnvironment,
    JobEnvironment,
    QueueEnvironment,
    ResultEnvironment,
)
from holdfast.services.roles import GRACE_S, CoordinatorRole, Fatal, Service, open_job, open_queue, open_result


class ServiceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a service is told beside its environment."""

    role: str
    host: str = "127.0.0.1"
    #: Where owners keep what they own; None: in memory.
    data: Path | None = None
    is_insecure: bool = False
    has_reflection: bool = False


def open_service(options: ServiceOptions, environment: Environment, fatal: Fatal) -> Service:
    """The service of this environment, not listening yet; `fatal` hears that it cannot go on."""
    if isinstance(environment, JobEnvironment):
        return open_job(environment, options.data, fatal)
    if isinstance(environment, QueueEnvironment):
        return open_queue(environment, options.data, fatal)
    if isinstance(environment, ResultEnvironment):
        return open_result(environment, options.data, fatal)
    if isinstance(environment, CoordinatorEnvironment):
        return CoordinatorRole(environment, fatal)
    assert isinstance(environment, GatewayEnvironment)
    return Gateway(environment, has_reflection=options.has_reflection)


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
