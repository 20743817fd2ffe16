"""The job service as one process serves it: the records."""

from pathlib import Path

import msgspec

from holdfast.core import records
from holdfast.proto import taskqueue_internal_pb2_grpc as rpc
from holdfast.services.environment import JobEnvironment, hashes_of
from holdfast.services.job import RETENTION, JobService
from holdfast.services.roles import Fatal, KeptService, Service, full_name, opened
from holdfast.services.server import ServiceServer


def open_job(environment: JobEnvironment, data: Path | None, fatal: Fatal) -> Service:
    """The records."""
    # On disk request ids are kept as long as their jobs: the bound is for what is only in memory.
    machine = records.Records(0 if data else environment.dedup_keys_max)
    keeper = opened(machine, data and data / "job", records.DIGEST_VERSION, fatal)
    server = ServiceServer(full_name("JobInternalService"), hashes_of(environment))
    retention = msgspec.structs.replace(
        RETENTION, retain_ms=environment.retain_ms, retain_failed_ms=environment.retain_failed_ms
    )
    rpc.add_JobInternalServiceServicer_to_server(JobService(keeper, machine, retention=retention), server.handlers)
    return KeptService(server, environment.port, keeper)
