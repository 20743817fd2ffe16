"""The socket itself: its file, its path, and connections with malformed data."""

import asyncio
import os
import socket
import stat
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from holdfast import limits
from holdfast.client.remote import RemoteJobs
from holdfast.client.socket_transport import SocketCarrier
from holdfast.client.socket_work import SocketWork
from holdfast.core.model import Template
from holdfast.errors import FailedPreconditionError, ResourceExhaustedError, UnavailableError
from holdfast.ports import Introduction, JobDraft
from holdfast.proto import holdfast_pb2 as pb
from holdfast.proto.frames import framed
from holdfast.server import conversation
from holdfast.server.ledger_server import LedgerServer
from holdfast.server.unix_socket import SOCKET_NAME, SocketServer
from tests.integration.conftest import Start
from tests.integration.transports import socket_of


class Raw:
    """A client that sends raw bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def say(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def shut(self) -> None:
        self._writer.write_eof()

    async def reply(self) -> pb.Reply:
        (length,) = struct.unpack(">I", await self._reader.readexactly(4))
        return pb.Reply.FromString(await self._reader.readexactly(length))

    async def rest(self) -> bytes:
        """Reads until the server closes the connection."""
        try:
            return await self._reader.read()
        except ConnectionError:
            return b""
        finally:
            self._writer.close()


@pytest.fixture
async def server(start: Start) -> LedgerServer:
    return await start()


@pytest.fixture
async def raw(server: LedgerServer) -> AsyncIterator[Raw]:
    reader, writer = await asyncio.open_unix_connection(socket_of(server))
    yield Raw(reader, writer)
    writer.close()


def stats_call(number: int = 1) -> bytes:
    return framed(pb.Call(id=number, method="AdminService/GetStats").SerializeToString())


@pytest.mark.parametrize(
    "data",
    [
        b"X",
        b"GET / HTTP/1.1\r\n\r\n",
        b"C" + struct.pack(">I", limits.MESSAGE_BYTES_MAX + 1),
        b"C\xff\xff\xff\xff",
        b"C" + framed(b"\xff" * 20),
        b"C" + framed(pb.Call(id=7, method="JobService/Feed").SerializeToString()) * 2,
        b"W" + framed(b"\xff" * 20),
    ],
    ids=["kind", "http", "oversized", "garbage", "no-call", "same-id", "no-worker"],
)
async def test_what_cannot_be_read_ends_that_connection_only(server: LedgerServer, raw: Raw, data: bytes) -> None:
    """The server drops a connection with malformed data, logs it, and continues to serve other connections."""
    async with RemoteJobs(await SocketCarrier.connect(socket_of(server))) as other:
        with capture_logs() as lines:
            await raw.say(data)
            await raw.rest()
        assert [line["event"] for line in lines if line["event"] == "connection_dropped"] == ["connection_dropped"]
        assert (await other.stats()).epoch == 1


@pytest.mark.parametrize("half", [b"C\x00\x00", b"C" + stats_call()[:-3], b"W\x00\x00\x00\x09abc"])
async def test_half_a_message_ends_with_its_connection(raw: Raw, half: bytes) -> None:
    """The server closes and logs a connection that ends in the middle of a message."""
    with capture_logs() as lines:
        await raw.say(half)
        raw.shut()
        assert await raw.rest() == b""
    assert "in the middle of a message" in lines[-1]["message"]


async def test_message_may_come_byte_by_byte_and_many_in_one_piece(raw: Raw) -> None:
    """The server reads messages that arrive byte by byte, and several that arrive at once."""
    for byte in b"C" + stats_call(5):
        await raw.say(bytes([byte]))
    assert (await raw.reply()).id == 5
    await raw.say(stats_call(6) + stats_call(7) + stats_call(8)[:10])
    assert [(await raw.reply()).id for _ in range(2)] == [6, 7]
    await raw.say(stats_call(8)[10:])
    assert (await raw.reply()).id == 8


async def test_stream_over_a_conversation_is_marked_and_can_be_called_off(server: LedgerServer, raw: Raw) -> None:
    """Messages of a stream are marked as continued, and a cancel ends the stream."""
    await raw.say(b"C" + framed(pb.Call(id=1, method="JobService/Feed").SerializeToString()))
    assert (await raw.reply()).more
    await raw.say(framed(pb.Call(id=1, cancel=True).SerializeToString()))
    await server.jobs.submit([Template("brew")], [JobDraft()])
    await raw.say(stats_call(2))
    replies = [await raw.reply()]
    while replies[-1].id != 2:
        replies.append(await raw.reply())
    assert all(reply.more and not reply.code for reply in replies[:-1])
    assert server.feed._readers == set()


async def test_client_that_reads_nothing_is_not_read_either(server: LedgerServer, raw: Raw) -> None:
    """The server stops reading from a client that does not read, and answers all its calls once it reads."""
    submitted = await server.jobs.submit([Template("brew")], [JobDraft(payload=b"x" * 1_000_000)])
    request = pb.GetJobRequest(job_id=submitted.job_ids[0], with_payload=True).SerializeToString()
    call = [framed(pb.Call(id=n, method="JobService/GetJob", body=request).SerializeToString()) for n in range(40)]
    await raw.say(b"C" + b"".join(call))
    async with asyncio.timeout(30):
        while not any(connection._holds for connection in server._socket._connections):
            await server.jobs.get(submitted.job_ids[0])
    assert sorted([(await raw.reply()).id for _ in range(40)]) == list(range(40))


async def test_too_many_calls_under_way_are_refused(server: LedgerServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call above the limit of concurrent calls is RESOURCE_EXHAUSTED, and the calls under way continue."""
    monkeypatch.setattr(conversation, "CALLS_MAX", 2)
    carrier = await SocketCarrier.connect(socket_of(server))
    job_id = (await server.jobs.submit([Template("brew")], [JobDraft()])).job_ids[0]
    call = ("JobService/AwaitJob", pb.AwaitJobRequest(job_id=job_id), pb.Job, None)
    waiting = [asyncio.create_task(carrier.call(*call)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(ResourceExhaustedError) as caught:
        await carrier.call(*call)
    assert caught.value.reason == "TOO_MANY_CALLS"
    await server.jobs.cancel(job_id, "")
    assert [job.id for job in await asyncio.gather(*waiting)] == [job_id] * 2
    await carrier.close()


async def test_only_the_owner_may_connect(server: LedgerServer) -> None:
    """Only the owner may open the socket's file, and the server removes it when it stops."""
    path = socket_of(server)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    await server.stop()
    assert not path.exists()


async def test_socket_of_a_dead_server_is_replaced(start: Start) -> None:
    """A server replaces the socket file that a killed server left behind."""
    first = await start()
    await first.stop()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(os.fspath(socket_of(first)))
    with pytest.raises(UnavailableError) as caught:
        await SocketCarrier.connect(socket_of(first))
    assert caught.value.reason == "UNREACHABLE"
    second = await start()
    async with RemoteJobs(await SocketCarrier.connect(socket_of(second))) as remote:
        assert (await remote.stats()).epoch == 2


async def test_file_in_the_way_is_left_alone(server: LedgerServer, tmp_path: Path) -> None:
    """A server refuses to start if a file that is no socket is at the socket's path, and does not delete it."""
    path = tmp_path / SOCKET_NAME
    path.write_text("mine")
    with pytest.raises(FailedPreconditionError, match="in the way"):
        await SocketServer(server.backend, pb.Welcome()).start(path)
    assert path.read_text() == "mine"


async def test_path_longer_than_a_socket_may_have_works(start: Start, tmp_path: Path) -> None:
    """Clients and workers can connect to a server in a directory with a path longer than a socket's limit."""
    folder = tmp_path.joinpath(*["a-rather-long-name-of-a-folder" * 3] * 3)
    folder.mkdir(parents=True)
    server = await start(data=str(folder))
    path = folder / SOCKET_NAME
    assert len(os.fsencode(path)) > 300
    async with RemoteJobs(await SocketCarrier.connect(path)) as remote:
        assert (await remote.stats()).epoch == 1
    session = await SocketWork(path).open(Introduction("w", frozenset({"brew"})))
    assert (await session.next()).lease_ms == server._settings.lease_ms
    await session.close()


@pytest.mark.parametrize("name", ["nothing-here.sock", "no-folder/holdfast.sock"])
async def test_nobody_there_is_unreachable(tmp_path: Path, name: str) -> None:
    """A connection attempt without a server is UNAVAILABLE, with the directory in the message."""
    path = tmp_path / name
    for connect in (
        lambda: SocketCarrier.connect(path),
        lambda: SocketWork(path).open(Introduction("w", frozenset())),
    ):
        with pytest.raises(UnavailableError, match=f"no server is running for '{path.parent}'") as caught:
            await connect()
        assert caught.value.reason == "UNREACHABLE"
