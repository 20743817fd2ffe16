"""The gateway of the pipeline: serves clients, and calls the schedulers in turn.

It stores nothing. It can also listen on a second HTTP port.
"""

from collections.abc import Sequence

import msgspec

from holdfast.core.condition import Condition
from holdfast.server.backend import Backend
from holdfast.server.conditions import of_backend
from holdfast.server.descriptors import ConnectionBudget
from holdfast.server.public_server import PublicServer
from holdfast.settings import Settings
from holdfast.topologies.pipeline import PIPELINE
from holdfast.topologies.pipeline.backend.http_client import RoleConnections
from holdfast.topologies.pipeline.backend.load_balancer import LoadBalancer
from holdfast.topologies.pipeline.backend.remote_api import BalancedAdmin, BalancedJobs, BalancedSchedules
from holdfast.topologies.pipeline.roles.scheduler import short_retries

_ELSEWHERE = (
    "workers of this topology take jobs from its queue processes: `holdfast up --topology pipeline -A module:app`"
    " starts them; `holdfast pipeline worker -A module:app` needs --coordinator, --database and a SERVICE_TOKEN or"
    " SERVICE_TOKEN_FILE"
)


class PipelineGateway:
    """The gateway of one process. `start`, then `stop`."""

    def __init__(
        self, settings: Settings, schedulers: Sequence[str], *, token: str = "", also_port: int | None, check_ms: int
    ) -> None:
        """`token` authenticates the gateway to the schedulers."""
        self._lines = RoleConnections(token=token)
        self._balancer = LoadBalancer(schedulers, self._lines, check_ms / 1_000)
        self._jobs = BalancedJobs(self._balancer)
        admin = BalancedAdmin(self._balancer)
        self._warnings = of_backend(admin)
        backend = Backend(
            self._jobs,
            admin=admin,
            schedules=BalancedSchedules(self._balancer),
            histories=self._jobs,
            declared=PIPELINE,
            elsewhere=_ELSEWHERE,
            short_retries=short_retries(settings.retries, settings.retry_ms),
        )
        second_port = None if settings.no_http else also_port
        budget = ConnectionBudget(http_ports=1 if second_port is None else 2)
        self._public_server = PublicServer(backend, settings, conditions=self._conditions, budget=budget)
        self._second = None if second_port is None else self._beside(settings, second_port)

    def _beside(self, settings: Settings, port: int) -> PublicServer:
        """Makes a public server for HTTP on another port, with the same backend, metrics and budget."""
        first = self._public_server
        return PublicServer(
            first.backend,
            msgspec.structs.replace(settings, http_port=port, metrics_port=0),
            protection=first.protection,
            measures=first.measures,
            has_grpc=False,
            conditions=first.conditions,
            budget=first.budget,
        )

    async def _conditions(self) -> Sequence[Condition]:
        """Returns the unavailable schedulers, whose causes are in the log, and the warnings of the others."""
        schedulers = self._balancer.schedulers
        away = sum(not one.is_well for one in schedulers)
        if not away:
            return await self._warnings()
        condition = Condition(f"{away} of {len(schedulers)} schedulers {'is' if away == 1 else 'are'} unavailable")
        return [condition, *(await self._warnings() if away < len(schedulers) else ())]

    async def start(self) -> dict[str, str]:
        """Listens, even if no scheduler is available; returns the addresses by protocol."""
        await self._balancer.start()
        addresses = await self._public_server.start()
        if self._second is not None:
            addresses = {**addresses, "http_also": (await self._second.start())["http"]}
        return addresses

    async def stop(self) -> None:
        """Stops, after calls in progress were answered."""
        if self._second is not None:
            await self._second.stop()
        await self._public_server.stop()
        await self._jobs.close()
        await self._balancer.close()
        await self._lines.close()
