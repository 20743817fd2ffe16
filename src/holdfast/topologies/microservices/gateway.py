"""The gateway service, which serves clients."""

import msgspec

from holdfast.server.backend import Backend
from holdfast.server.conditions import RemoteConditions
from holdfast.server.early_ports import EarlyPorts
from holdfast.server.protection import protect
from holdfast.server.public_server import PublicServer
from holdfast.server.startup import Startup
from holdfast.settings import Settings
from holdfast.topologies.microservices import MICROSERVICES
from holdfast.topologies.microservices.backend.job_api import ServiceJobs
from holdfast.topologies.microservices.backend.owner_clients import Owners
from holdfast.topologies.microservices.backend.owner_health import OwnerHealth
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

    def __init__(self, environment: GatewayEnvironment, settings: Settings, *, is_early: bool = False) -> None:
        """The environment has the ports and addresses; the settings have the rest.

        If it is early, it listens at once and serves when all owners do.
        """
        self._settings = settings = _placed(settings, environment)
        self._protection = protect(settings)
        self._startup = Startup() if is_early else None
        channels = {
            "job": open_channel(environment.job_address),
            "queue": open_channel(environment.queue_address),
            "result": open_channel(environment.result_address),
        }
        self._health = OwnerHealth(channels)
        self._owners = Owners(
            **channels,
            metadata=credential(environment.token),
            timeout_ms=environment.internal_timeout_ms,
        )
        #: The addresses on which it listens, by protocol.
        self.addresses: dict[str, str] = {}
        self.public_server: PublicServer

    async def start(self, host: str) -> str:
        """Listens and serves, even if the owners are unreachable; if it is early, it waits for them first."""
        del host  # the settings have it
        try:
            early = await self._until_owners_serve(self._startup) if self._startup is not None else None
            self.public_server = PublicServer(
                Backend(ServiceJobs(self._owners), declared=MICROSERVICES, elsewhere=ELSEWHERE),
                self._settings,
                protection=self._protection,
                conditions=RemoteConditions(self._health.conditions),
                early=early,
            )
            self.addresses = await self.public_server.start()
        except BaseException:
            await self._owners.close()
            raise
        return self.addresses["grpc"]

    async def _until_owners_serve(self, startup: Startup) -> EarlyPorts:
        """Listens, and returns the ports when all owners serve; probes and calls are answered meanwhile."""
        early = EarlyPorts(self._settings, self._protection, startup)
        await early.open_until(self._health.serving, self._health.total)
        return early

    def give_up(self) -> None:
        """Ends a start that waits for the owners."""
        if self._startup is not None:
            self._startup.stop()

    async def stop(self) -> None:
        """Stops, after calls in flight were answered."""
        await self.public_server.stop()
        await self._owners.close()


def _placed(settings: Settings, environment: GatewayEnvironment) -> Settings:
    has_http = environment.http_port != NO_PORT
    http_port = environment.http_port if has_http else 0
    return msgspec.structs.replace(settings, port=environment.port, http_port=http_port, no_http=not has_http)
