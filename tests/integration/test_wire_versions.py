"""Versions of the wire: clients of release 0.1, other versions, and messages of later versions of the same one."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message
from structlog.testing import capture_logs

from holdfast import limits
from holdfast.client import wire_line
from holdfast.client.blocking_transport import BlockingTransport
from holdfast.client.endpoints import Endpoint, TcpEndpoint, UnixEndpoint
from holdfast.client.wire_transport import WireTransport
from holdfast.client.wire_work import WireWork
from holdfast.core.model import Template
from holdfast.errors import FINAL, UnimplementedError
from holdfast.ports import Assignment, JobDraft
from holdfast.proto import holdfast_pb2 as pb
from holdfast.server.ledger_server import LedgerServer
from holdfast.server.unix_socket import SOCKET_NAME
from holdfast.wire import messages as wire
from holdfast.wire import methods
from holdfast.wire.frames import framed
from holdfast.wire.messages import error_named
from holdfast.wire.methods import NOTHING
from holdfast.worker.config import WorkerConfig
from holdfast.worker.handlers import Handler
from holdfast.worker.runtime import Worker
from tests.integration.conftest import Start
from tests.integration.raw_wire import RawWire, raw_socket, raw_wire, wire_address


def socket_of(server: LedgerServer) -> Path:
    return Path(server._settings.data) / SOCKET_NAME


def endpoints(server: LedgerServer) -> list[Endpoint]:
    """Every place where the server serves the wire, and the port that redirects to it."""
    return [UnixEndpoint(socket_of(server)), TcpEndpoint(wire_address(server)), TcpEndpoint(server.address)]


# -- release 0.1, which spoke protobuf on the socket

STATS_CALL = pb.Call(id=1, method="AdminService/GetStats", body=pb.GetStatsRequest().SerializeToString())
HELLO = pb.WorkerMessage(hello=pb.Hello(worker_id="w", types=["echo"], slots=1), credits=1)


@pytest.mark.parametrize("pieces", [1, 3, 1_000])
async def test_client_of_release_0_1_gets_one_clear_error(start: Start, pieces: int) -> None:
    """A client of release 0.1 gets one reply to its first call, which says that it is too old, and the end."""
    server = await start()
    reply = await answer_of_older(server, b"C", STATS_CALL, pieces, pb.Reply)
    assert (reply.id, reply.code, reply.reason) == (1, "FAILED_PRECONDITION", "CLIENT_TOO_OLD")
    assert "install the same release in both" in reply.message
    assert not reply.more
    assert not error_named(reply.code, reply.reason, reply.message).retryable


@pytest.mark.parametrize("pieces", [1, 3, 1_000])
async def test_worker_of_release_0_1_gets_one_clear_error_and_stops(start: Start, pieces: int) -> None:
    """A worker of release 0.1 gets an ending with an error after which it does not open another session."""
    server = await start()
    message = await answer_of_older(server, b"W", HELLO, pieces, pb.CoordinatorMessage)
    ending = message.ending
    assert ending.reason == "CLIENT_TOO_OLD"
    assert "install the same release in both" in ending.message
    assert isinstance(error_named(ending.code, ending.reason, ending.message), FINAL)
    assert not message.leases
    assert not await server.admin.workers()


async def answer_of_older(server: LedgerServer, first: bytes, sent: Message, pieces: int, kind: type[Message]) -> Any:  # noqa: ANN401 - a message of this kind
    """Sends a first byte, and then a message in pieces, as release 0.1 did; returns the one message that comes back."""
    stream = framed(sent.SerializeToString())
    size = -(-len(stream) // pieces)
    async with raw_socket(str(socket_of(server))) as line, raw_socket(str(socket_of(server))) as other:
        line.send(first)
        await other.open()  # the server has read the first byte meanwhile
        for at in range(0, len(stream), size):
            line.send(stream[at : at + size])
            await asyncio.sleep(0)
        answer = kind.FromString(await line.message())
        assert await line.rest() == b""
    return answer


async def test_older_client_can_write_its_whole_message(start: Start) -> None:
    """A client of release 0.1 with a large message gets its answer, because the server reads the message first."""
    server = await start()
    large = pb.Call(id=1, method="JobService/SubmitJobs", body=bytes(4 << 20))
    reply = await answer_of_older(server, b"C", large, 1, pb.Reply)
    assert reply.reason == "CLIENT_TOO_OLD"


async def test_older_client_that_never_stops_writing_is_dropped(start: Start) -> None:
    """The server reads no more than one message of a refused client."""
    server = await start()
    async with raw_socket(str(socket_of(server))) as line:
        line.send(b"C" + bytes(limits.MESSAGE_BYTES_MAX * 3))
        await line.rest()
        with pytest.raises(ConnectionError):
            await written_for_ever(line)


async def written_for_ever(line: RawWire) -> None:
    """Sends bytes until the connection is lost."""
    while True:
        await line.writer.drain()
        line.send(bytes(1 << 16))


async def test_older_clients_are_logged_and_others_are_served(start: Start) -> None:
    """Each connection of release 0.1 is one line in the log, and does not affect another connection."""
    server = await start()
    async with raw_socket(str(socket_of(server))) as line:
        await line.open()
        with capture_logs() as logs:
            await answer_of_older(server, b"C", STATS_CALL, 1, pb.Reply)
            await answer_of_older(server, b"W", HELLO, 1, pb.CoordinatorMessage)
        assert [log["event"] for log in logs] == ["connection_dropped"] * 2
        line.call(1, methods.STATS, NOTHING)
        assert (await line.reply()).kind == wire.LAST


# -- other versions of the wire


@pytest.mark.parametrize(("versions", "is_known"), [((1, 1), True), ((1, 9), True), ((0, 1), True), ((0, 0), False)])
async def test_server_takes_the_version_that_both_know(
    start: Start, versions: tuple[int, int], *, is_known: bool
) -> None:
    """The server selects its version if the client knows it, and else refuses with both versions and its release."""
    server = await start()
    for purpose in (wire.CALLS, wire.WORK):
        async with raw_wire(wire_address(server)) as line:
            opened = await line.open(purpose, versions=versions)
            assert opened.version == (wire.VERSION if is_known else 0)
            assert opened.program
            if not is_known:
                assert (opened.code, opened.reason) == ("UNIMPLEMENTED", "WIRE_VERSION")
                assert await line.rest() == b""


@pytest.mark.parametrize("versions", [(2, 3), (0, 0), (2, 1), (-5, -1), (1 << 63, 1 << 63)])
async def test_error_for_an_unknown_version_says_how_to_fix_it(start: Start, versions: tuple[int, int]) -> None:
    """The error for an unknown version names the versions of both sides and says what to do."""
    server = await start()
    async with raw_wire(wire_address(server)) as line:
        opened = await line.open(versions=versions)
        assert f"knows version {wire.VERSION} of the wire" in opened.message
        assert f"the client {versions[0]} to {versions[1]}" in opened.message
        assert "use the same release on both sides" in opened.message


async def test_clients_of_another_version_get_one_error(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client of another version raises the server's error at once, on the socket, on TCP and after a redirect."""
    server = await start()
    monkeypatch.setattr(wire_line, "VERSION", 2)
    for endpoint in endpoints(server):
        with capture_logs() as logs:
            with pytest.raises(UnimplementedError, match="use the same release") as caught:
                await WireTransport.connect(endpoint)
            assert caught.value.reason == "WIRE_VERSION"
            with pytest.raises(UnimplementedError, match="use the same release"):
                await asyncio.to_thread(BlockingTransport.connect, endpoint)
        assert len([log for log in logs if log["event"] == "refused"]) == 2


async def test_worker_of_another_version_stops(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker of another version ends with the error after one attempt, and does not retry."""
    server = await start()
    monkeypatch.setattr(wire_line, "VERSION", 2)

    async def handle(_: Assignment) -> bytes:
        return b""

    for endpoint in endpoints(server):
        worker = Worker(WireWork(endpoint), {"echo": Handler(handle)}, WorkerConfig(worker_id="w"))
        with capture_logs() as logs, pytest.raises(UnimplementedError, match="use the same release"):
            await worker.run()
        assert [log["reason"] for log in logs if log["event"] == "refused"] == ["WIRE_VERSION"]


async def test_unknown_purpose_is_refused(start: Start) -> None:
    """An opening for an unknown purpose is refused, and the purpose is shortened in the error."""
    server = await start()
    async with raw_wire(wire_address(server)) as line:
        opened = await line.open("x" * 2_000)
        assert (opened.code, opened.reason) == ("INVALID_ARGUMENT", "PURPOSE_INVALID")
        assert len(opened.message) < 200
        assert await line.rest() == b""


# -- later clients of the same version


async def test_elements_of_later_releases_are_ignored(start: Start) -> None:
    """Openings, calls, requests and workers' messages may have more elements than the server knows."""
    server = await start()
    async with raw_wire(wire_address(server)) as line:
        line.send(wire.MAGIC + framed(wire.encode([1, 1, wire.CALLS, "", "9.9", wire.NO_SHARD, {"later": True}, 1])))
        assert wire.decode_opened(await line.message()).version == wire.VERSION
        submission = [[Template("echo")], [JobDraft()], "later", None]
        line.send(framed(wire.encode([1, methods.SUBMIT.name, submission, {"later": 1}])))
        submitted = methods.SUBMIT.decode_response((await line.reply()).body)
        assert len(submitted.job_ids) == 1
    async with raw_wire(wire_address(server)) as worker:
        await worker.open(wire.WORK)
        message = [["w", ["echo"]], 1, [], 0, False, [], False, [], False, False, "later"]
        worker.send(framed(wire.encode(message)))
        assert wire.decode_push(await worker.message()).kind == wire.LAST


async def test_elements_that_are_missing_have_their_defaults(start: Start) -> None:
    """The shortest opening, call and message of a worker are enough."""
    server = await start()
    async with raw_wire(wire_address(server)) as line:
        line.send(wire.MAGIC + framed(wire.encode([1, 1, wire.CALLS])))
        assert wire.decode_opened(await line.message()).version == wire.VERSION
        line.send(framed(wire.encode([1, methods.STATS.name, []])))
        assert (await line.reply()).kind == wire.LAST
        line.send(framed(wire.encode([2, methods.STATS.name])))
        assert (await line.failure())[1].reason == "MESSAGE_MALFORMED"
    async with raw_wire(wire_address(server)) as worker:
        await worker.open(wire.WORK)
        worker.send(framed(wire.encode([["w", ["echo"]]])))
        assert wire.decode_push(await worker.message()).kind == wire.LAST
