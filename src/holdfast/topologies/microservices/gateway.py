"""The gateway service, which serves clients."""

import msgspec

from holdfast.server.backend import Backend
from holdfast.server.protection import protect
from holdfast.server.public_server import PublicServer
from holdfast.settings import Settings
from holdfast.topologies.microservices import MICROSERVICES
from holdfast.topologies.microservices.backend.job_api import ServiceJobs
from holdfast.topologies.microservices.backend.owner_clients import Owners
from holdfast.topologies.microservices.grpc_channel import open_channel
from holdfast.topologies.microservices.services.callers import credential
from holdfast.topologies.microservices.services.environment import NO_PORT, GatewayEnvironment

ELSEWHERE = (
    "workers of this topology connect to its coordinator: `holdfast up --topology microservices -A module:app`"
    " starts one; `holdfast service worker -A module:app`, for services that were started one by one, needs"
    " COORDINATOR_ADDR and its SERVICE_TOKEN"
)


class Gateway:
    """Serves the frozen contract, the product's own API and HTTP to clients, on top of the owners."""

    def __init__(self, environment: GatewayEnvironment, settings: Settings) -> None:
        """The environment has the ports and addresses; the settings have the rest."""
        settings = _placed(settings, environment)
        protection = protect(settings)
        self._owners = Owners(
            job=open_channel(environment.job_address),
            queue=open_channel(environment.queue_address),
            result=open_channel(environment.result_address),
            metadata=credential(environment.token),
            timeout_ms=environment.internal_timeout_ms,
        )
        self.public_server = PublicServer(
            Backend(ServiceJobs(self._owners), declared=MICROSERVICES, elsewhere=ELSEWHERE),
            settings,
            protection=protection,
        )

    @property
    def addresses(self) -> dict[str, str]:
        """The addresses on which it listens, by protocol."""
        return self.public_server.addresses

    async def start(self, host: str) -> str:
        """Listens, even if the owners are unreachable."""
        del host  # the settings have it
        try:
            return (await self.public_server.start())["grpc"]
        except BaseException:
            await self._owners.close()
            raise

    async def stop(self) -> None:
        """Stops, after calls in flight were answered."""
        await self.public_server.stop()
        await self._owners.close()


def _placed(settings: Settings, environment: GatewayEnvironment) -> Settings:
    has_http = environment.http_port != NO_PORT
    http_port = environment.http_port if has_http else 0
    return msgspec.structs.replace(settings, port=environment.port, http_port=http_port, no_http=not has_http)
