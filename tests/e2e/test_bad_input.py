"""Invalid bytes from clients: the server refuses them and never writes them to the journal."""

import random
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from holdfast.proto import holdfast_pb2, taskqueue_internal_pb2, taskqueue_public_pb2
from tests.e2e.fleet import Program
from tests.e2e.grpc_client import Wire, refusal
from tests.e2e.preloaded_fleet import loaded_fleet_in
from tests.e2e.preloaded_prompt import LoadedProgram
from tests.e2e.test_bad_directories import contents
from tests.e2e.wait_until import eventually

SEED = 7
UNARY = [
    f"/{service.full_name}/{method.name}"
    for service in (
        taskqueue_public_pb2.DESCRIPTOR.services_by_name["TaskQueuePublicService"],
        taskqueue_internal_pb2.DESCRIPTOR.services_by_name["CoordinatorInternalService"],
        holdfast_pb2.DESCRIPTOR.services_by_name["JobService"],
        holdfast_pb2.DESCRIPTOR.services_by_name["AdminService"],
    )
    for method in service.methods
    if not method.client_streaming and not method.server_streaming
]
STREAM = "/holdfast.v1.WorkService/Work"


def hostile_bodies() -> Iterator[bytes]:
    """Yields messages that cannot be parsed or that are invalid."""
    yield b"\x0a"  # a field without its length
    yield b"\x0a\x05abc"  # shorter than its length prefix
    yield b"\x0a\x04\xff\xfe\xc3\x28"  # text that is not UTF-8
    yield b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f"  # a length of nearly 2**63
    yield b"\x0b" * 100_000  # nested groups
    yield nested(200)
    yield b"\xff" * 1_000
    yield b"\x00" * 1_000
    yield b"\x0a\x03" + b"\xed\xa0\x80"  # a lone surrogate
    draw = random.Random(SEED)
    for _ in range(20):
        yield draw.randbytes(draw.randrange(1, 300))


def nested(depth: int) -> bytes:
    """Returns a message nested to this depth."""
    body = b""
    for _ in range(depth):
        length = len(body)
        prefix = bytes([length]) if length < 128 else bytes([length & 127 | 128, length >> 7])
        body = b"\x0a" + prefix + body
    return body


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory, loaded: LoadedProgram) -> Iterator[tuple[Program, Wire, Path]]:
    """A server with one queued job, a client and the data directory."""
    folder = tmp_path_factory.mktemp("hostile")
    with loaded_fleet_in(folder, loaded) as fleet:
        server, wire = fleet.server()
        wire.new(key="innocent")
        yield server, wire, folder / "data"


def outcome(wire: Wire, path: str, body: bytes) -> grpc.StatusCode:
    """Returns the status code of the call."""
    try:
        wire.raw(path, body)
    except grpc.RpcError as error:
        code: grpc.StatusCode = error.code()
        return code
    return grpc.StatusCode.OK


CLEAR = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.RESOURCE_EXHAUSTED,  # gRPC's own status for oversized messages
    }
)
#: Methods that accept any parsable bytes, because they ignore unknown fields.
READS = (
    "/taskqueue.v1.TaskQueuePublicService/ListJobs",
    "/holdfast.v1.JobService/FindJobs",
    *(f"/holdfast.v1.AdminService/{name}" for name in ("GetStats", "GetCapabilities", "ListQueues", "ListWorkers")),
)


@pytest.mark.parametrize("path", UNARY)
def test_bytes_that_are_no_request_change_nothing(serving: tuple[Program, Wire, Path], path: str) -> None:
    """Every unary method refuses invalid bytes with a clear status, and the journal does not change."""
    server, wire, data = serving
    before = contents(data)
    for body in hostile_bodies():
        code = outcome(wire, path, body)
        assert code in CLEAR or (path in READS and code == grpc.StatusCode.OK), body[:20]
    assert contents(data) == before
    assert server.is_running()
    assert len(wire.all_jobs()) == 1


@pytest.mark.parametrize("path", UNARY)
def test_message_over_the_limit_is_refused(serving: tuple[Program, Wire, Path], path: str) -> None:
    """Every method refuses a field of six megabytes, and the journal does not change."""
    _, wire, data = serving
    before = contents(data)
    size = 6 << 20
    text = b"\x0a" + bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14 & 127 | 128, size >> 21])
    assert outcome(wire, path, text + b"a" * size) in CLEAR
    assert contents(data) == before


def test_hostile_streams_are_ended_and_change_nothing(serving: tuple[Program, Wire, Path]) -> None:
    """The server ends a worker stream of garbage with INVALID_ARGUMENT, and the journal does not change."""
    server, wire, data = serving
    before = contents(data)
    for body in hostile_bodies():
        call = wire.channel.stream_stream(STREAM, bytes, bytes)(iter([body]), timeout=30)
        with pytest.raises(grpc.RpcError) as caught:
            list(call)
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert contents(data) == before
    assert server.is_running()
    assert "Traceback" not in server.log


def test_unreadable_request_is_told_and_logged_as_such(serving: tuple[Program, Wire, Path]) -> None:
    """The server refuses an unreadable request with the reason MESSAGE_MALFORMED and logs its method."""
    server, wire, _ = serving
    before = len(server.lines("refused"))
    refused = refusal(lambda: wire.raw("/taskqueue.v1.TaskQueuePublicService/CancelJob", b"\x0a"))
    assert (refused.code, refused.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "MESSAGE_MALFORMED")
    wanted = {"method": "CancelJob", "grpc_code": "INVALID_ARGUMENT", "reason": "MESSAGE_MALFORMED"}
    eventually(lambda: [line for line in server.lines("refused")[before:] if wanted.items() <= line.items()])


def test_server_is_as_good_as_new_after_all_of_it(serving: tuple[Program, Wire, Path]) -> None:
    """After all invalid input the server still has its job, knows the job's key and exits with 0."""
    server, wire, _ = serving
    (job,) = wire.all_jobs()
    assert wire.new(key="innocent") == job.job_id
    assert server.stop() == 0
