"""The owners of the microservices and a gateway in this process, as their processes run them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast.settings import MEMORY, Settings
from holdfast.topologies.microservices.gateway import Gateway
from holdfast.topologies.microservices.services.environment import (
    GatewayEnvironment,
    JobEnvironment,
    QueueEnvironment,
    ResultEnvironment,
)
from holdfast.topologies.microservices.services.job_service import open_job
from holdfast.topologies.microservices.services.queue_service import open_queue
from holdfast.topologies.microservices.services.result_service import open_result
from holdfast.topologies.microservices.services.roles import Host, OwnerService
from tests.e2e.fleet import stable_port

LOOPBACK = "127.0.0.1"


class ServicesOnDisk:
    """Three owners over directories, and a gateway, each with a port that is known before it starts."""

    def __init__(self, folder: Path, *, is_early: bool = False, http_port: int = 0) -> None:
        ports: set[int] = set()
        while len(ports) < 3:
            ports.add(stable_port())
        job, queue, result = sorted(ports)
        self.addresses = {"job": f"{LOOPBACK}:{job}", "queue": f"{LOOPBACK}:{queue}", "result": f"{LOOPBACK}:{result}"}
        owners = {
            "job": open_job(JobEnvironment(port=job), folder, Host(failing)),
            "queue": open_queue(QueueEnvironment(port=queue), folder, Host(failing)),
            "result": open_result(ResultEnvironment(port=result), folder, Host(failing)),
        }
        self.owners = {name: owner for name, owner in owners.items() if isinstance(owner, OwnerService)}
        environment = GatewayEnvironment(
            port=0,
            http_port=http_port,
            job_address=self.addresses["job"],
            queue_address=self.addresses["queue"],
            result_address=self.addresses["result"],
        )
        self.gateway = Gateway(environment, Settings(data=MEMORY, log_level="error"), is_early=is_early)


def failing(error: BaseException) -> None:
    """Fails the test: no owner may end here."""
    raise error


@asynccontextmanager
async def services_on_disk(folder: Path) -> AsyncIterator[ServicesOnDisk]:
    """Yields services that serve, until the block ends."""
    services = ServicesOnDisk(folder)
    for owner in services.owners.values():
        await owner.start(LOOPBACK)
    await services.gateway.start(LOOPBACK)
    yield services
    await services.gateway.stop()
    for owner in services.owners.values():
        await owner.stop()
