"""The result service as one process serves it: how jobs ended."""

from pathlib import Path

from holdfast.core.digest import DIGEST_VERSION
from holdfast.proto import taskqueue_internal_pb2_grpc as rpc
from holdfast.topologies.microservices.services.environment import ResultEnvironment, hashes_of
from holdfast.topologies.microservices.services.internal_server import ServiceServer
from holdfast.topologies.microservices.services.result_service import ResultService
from holdfast.topologies.microservices.services.roles import Host, KeptService, Service, full_name, opened
from holdfast.topologies.microservices.state import envelopes


def open_result(environment: ResultEnvironment, data: Path | None, host: Host) -> Service:
    """How jobs ended."""
    retention = envelopes.EnvelopeRetention.beyond(
        retain_ms=environment.retain_ms, retain_failed_ms=environment.retain_failed_ms
    )
    machine = envelopes.Envelopes(retention)
    keeper = opened(machine, data and data / "result", DIGEST_VERSION, host)
    service = ResultService(keeper, machine, output_bytes_max=environment.output_bytes_max)
    server = ServiceServer(full_name("ResultInternalService"), hashes_of(environment))
    rpc.add_ResultInternalServiceServicer_to_server(service, server.handlers)
    return KeptService(server, environment.port, keeper)
