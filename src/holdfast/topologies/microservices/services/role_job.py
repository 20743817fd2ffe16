"""The job service as one process serves it: the records."""

from pathlib import Path

import msgspec

from holdfast.core.digest import DIGEST_VERSION
from holdfast.proto import taskqueue_internal_pb2_grpc as rpc
from holdfast.topologies.microservices.services.environment import JobEnvironment, hashes_of
from holdfast.topologies.microservices.services.internal_server import ServiceServer
from holdfast.topologies.microservices.services.job_service import RETENTION, JobService
from holdfast.topologies.microservices.services.roles import Host, KeptService, Service, full_name, opened
from holdfast.topologies.microservices.state import records


def open_job(environment: JobEnvironment, data: Path | None, host: Host) -> Service:
    """The records."""
    # On disk request ids are kept as long as their jobs: the bound is for what is only in memory.
    machine = records.Records(0 if data else environment.dedup_keys_max, environment.memory_bytes)
    keeper = opened(machine, data and data / "job", DIGEST_VERSION, host)
    server = ServiceServer(full_name("JobInternalService"), hashes_of(environment))
    retention = msgspec.structs.replace(
        RETENTION,
        retain_ms=environment.retain_ms,
        retain_failed_ms=environment.retain_failed_ms,
        # Results give way to jobs that wait: they never fill more than half of the memory.
        retain_bytes=min(RETENTION.retain_bytes, environment.memory_bytes // 2),
    )
    rpc.add_JobInternalServiceServicer_to_server(JobService(keeper, machine, retention=retention), server.handlers)
    return KeptService(server, environment.port, keeper)
