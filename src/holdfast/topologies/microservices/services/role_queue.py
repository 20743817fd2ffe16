"""The queue service as one process serves it: what waits."""

from pathlib import Path

from holdfast import limits
from holdfast.core.digest import DIGEST_VERSION
from holdfast.proto import taskqueue_internal_pb2_grpc as rpc
from holdfast.topologies.microservices.services.environment import QueueEnvironment, hashes_of
from holdfast.topologies.microservices.services.internal_server import ServiceServer
from holdfast.topologies.microservices.services.queue_service import QueueService
from holdfast.topologies.microservices.services.roles import Host, KeptService, Service, full_name, opened
from holdfast.topologies.microservices.state import waiting_jobs


def open_queue(environment: QueueEnvironment, data: Path | None, host: Host) -> Service:
    """What waits."""
    machine = waiting_jobs.WaitingJobs(limits.AGING_MS_DEFAULT)
    keeper = opened(machine, data and data / "queue", DIGEST_VERSION, host)
    server = ServiceServer(full_name("QueueInternalService"), hashes_of(environment))
    rpc.add_QueueInternalServiceServicer_to_server(QueueService(keeper, machine), server.handlers)
    return KeptService(server, environment.port, keeper)
