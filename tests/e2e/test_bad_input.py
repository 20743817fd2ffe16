"""Bytes that no client of ours sends: answered or dropped, and never written down."""

import random
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from holdfast.proto import holdfast_pb2, taskqueue_internal_pb2, taskqueue_public_pb2
from tests.e2e.fleet import Program
from tests.e2e.loaded import LoadedProgram
from tests.e2e.loaded_fleet import loaded_fleet_in
from tests.e2e.test_bad_directories import contents
from tests.e2e.waiting import eventually
from tests.e2e.wire import Wire, refusal

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
    """Messages that cannot be read, or that say nothing lawful."""
    yield b"\x0a"  # a field without its length
    yield b"\x0a\x05abc"  # shorter than it says
    yield b"\x0a\x04\xff\xfe\xc3\x28"  # text that is not UTF-8
    yield b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f"  # a length of nearly 2**63
    yield b"\x0b" * 100_000  # groups within groups
    yield nested(200)
    yield b"\xff" * 1_000
    yield b"\x00" * 1_000
    yield b"\x0a\x03" + b"\xed\xa0\x80"  # a lone surrogate
    draw = random.Random(SEED)
    for _ in range(20):
        yield draw.randbytes(draw.randrange(1, 300))


def nested(depth: int) -> bytes:
    """A message in a message in a message."""
    body = b""
    for _ in range(depth):
        length = len(body)
        prefix = bytes([length]) if length < 128 else bytes([length & 127 | 128, length >> 7])
        body = b"\x0a" + prefix + body
    return body


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory, loaded: LoadedProgram) -> Iterator[tuple[Program, Wire, Path]]:
    """A server with one queued job, and its directory."""
    folder = tmp_path_factory.mktemp("hostile")
    with loaded_fleet_in(folder, loaded) as fleet:
        server, wire = fleet.server()
        wire.new(key="innocent")
        yield server, wire, folder / "data"


def outcome(wire: Wire, path: str, body: bytes) -> grpc.StatusCode:
    """How the call ended."""
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
        grpc.StatusCode.RESOURCE_EXHAUSTED,  # what gRPC itself says of messages that are too large
    }
)
#: These are lawful with any bytes that can be read: unknown fields are ignored.
READS = (
    "/taskqueue.v1.TaskQueuePublicService/ListJobs",
    "/holdfast.v1.JobService/FindJobs",
    *(f"/holdfast.v1.AdminService/{name}" for name in ("GetStats", "GetCapabilities", "ListQueues", "ListWorkers")),
)


@pytest.mark.parametrize("path", UNARY)
def test_bytes_that_are_no_request_change_nothing(serving: tuple[Program, Wire, Path], path: str) -> None:
    """Every unary method answers them with a clear status, and the journal stays as it was, byte for byte."""
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
    """Six megabytes in one field are refused by every method, and nothing is written."""
    _, wire, data = serving
    before = contents(data)
    size = 6 << 20
    text = b"\x0a" + bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14 & 127 | 128, size >> 21])
    assert outcome(wire, path, text + b"a" * size) in CLEAR
    assert contents(data) == before


def test_hostile_streams_are_ended_and_change_nothing(serving: tuple[Program, Wire, Path]) -> None:
    """A worker's stream of garbage ends with a status that is not OK, and the journal stays as it was."""
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
    """It carries the reason MESSAGE_MALFORMED, and the log names its method."""
    server, wire, _ = serving
    before = len(server.lines("refused"))
    refused = refusal(lambda: wire.raw("/taskqueue.v1.TaskQueuePublicService/CancelJob", b"\x0a"))
    assert (refused.code, refused.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "MESSAGE_MALFORMED")
    wanted = {"method": "CancelJob", "grpc_code": "INVALID_ARGUMENT", "reason": "MESSAGE_MALFORMED"}
    eventually(lambda: [line for line in server.lines("refused")[before:] if wanted.items() <= line.items()])


def test_server_is_as_good_as_new_after_all_of_it(serving: tuple[Program, Wire, Path]) -> None:
    """After the garbage the one job is there, its key is known, and the server ends with 0."""
    server, wire, _ = serving
    (job,) = wire.all_jobs()
    assert wire.new(key="innocent") == job.job_id
    assert server.stop() == 0
