"""The bytes of a connection: its opening, malformed data, and the socket's file and path."""

import asyncio
import os
import socket
import stat
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from holdfast import __version__, limits
from holdfast.client.endpoints import UnixEndpoint
from holdfast.client.remote import RemoteJobs
from holdfast.client.wire_transport import WireTransport
from holdfast.client.wire_work import WireWork
from holdfast.core.model import Template
from holdfast.errors import Code, FailedPreconditionError, ResourceExhaustedError, UnavailableError
from holdfast.ledger.session_messages import LeaseTerms
from holdfast.ports import Introduction, JobDraft
from holdfast.proto import holdfast_pb2 as pb
from holdfast.server import ledger_server
from holdfast.server.ledger_server import LedgerServer
from holdfast.server.unix_socket import SOCKET_NAME, SocketServer
from holdfast.server.wire import conversation
from holdfast.server.wire.connection import WireConnection
from holdfast.wire.frames import framed
from holdfast.wire.messages import (
    ERROR,
    MAGIC,
    MORE,
    OPENING_BYTES_MAX,
    VERSION,
    Opened,
    Reply,
    WorkerMessage,
    decode_failure,
    decode_opened,
    decode_push,
    decode_reply,
    encode,
)
from holdfast.wire.methods import SUBMIT
from tests.integration.conftest import Start
from tests.integration.transports import endpoint_of, socket_of, wire_address

KINDS = ("socket", "tcp")


class Raw:
    """A client that sends raw bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def say(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def shut(self) -> None:
        self._writer.write_eof()

    def close(self) -> None:
        self._writer.close()

    async def message(self) -> bytes:
        (length,) = struct.unpack(">I", await self._reader.readexactly(4))
        return await self._reader.readexactly(length)

    async def opened(self) -> Opened:
        return decode_opened(await self.message())

    async def reply(self) -> Reply:
        return decode_reply(await self.message())

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


async def raw_to(server: LedgerServer, kind: str) -> Raw:
    if kind == "socket":
        return Raw(*await asyncio.open_unix_connection(socket_of(server)))
    host, _, port = wire_address(server).rpartition(":")
    return Raw(*await asyncio.open_connection(host, int(port)))


@pytest.fixture(params=KINDS)
async def raw(server: LedgerServer, request: pytest.FixtureRequest) -> AsyncIterator[Raw]:
    raw = await raw_to(server, request.param)
    yield raw
    raw.close()


def opening(purpose: object = "calls", version_min: int = VERSION, version_max: int = VERSION, *rest: object) -> bytes:
    return MAGIC + framed(encode([version_min, version_max, purpose, *rest]))


def call(number: int, method: str, *arguments: object) -> bytes:
    return framed(encode([number, method, arguments]))


def connections(server: LedgerServer) -> list[WireConnection]:
    """The connections over the socket and over TCP whose callers were admitted."""
    return [*server._socket._service._connections, *server.public_server._wire._connections]


OPENED = framed(encode(Opened(VERSION, program=__version__)))
STATS = "admin.stats"
BAD_OPENINGS = {
    "magic": b"\0HTTP",
    "long-opening": MAGIC + struct.pack(">I", OPENING_BYTES_MAX + 1),
    "longest-opening": MAGIC + b"\xff\xff\xff\xff",
    "no-opening": MAGIC + framed(b"\xff" * 20),
    "half-an-opening": MAGIC + framed(encode([VERSION])),
    "purpose-of-another-type": opening(7),
    "no-frame": MAGIC + framed(b""),
}
BAD_MESSAGES = {
    "oversized": opening() + struct.pack(">I", limits.MESSAGE_BYTES_MAX + 1),
    "garbage": opening() + b"\xff\xff\xff\xff",
    "no-call": opening() + framed(b"\xff" * 20),
    "no-message": opening() + framed(b""),
    "two-messages": opening() + framed(encode([1, STATS, []]) * 2),
    "no-text": opening() + framed(b"\x93\x01\xa2\xff\xfe\x90"),
    "nested": opening() + framed(b"\x93\x01\xa1x" + b"\x91" * 100_000),
    "no-id": opening() + call(0, STATS),
    "negative-id": opening() + call(-1, STATS),
    "same-id": opening() + call(7, "feed", None) * 2,
    "no-worker": opening("work") + framed(b"\xff" * 20),
    "worker-of-numbers": opening("work") + framed(encode([[1, 2, 3]])),
    "nested-worker": opening("work") + framed(b"\x91" * 100_000),
}


@pytest.mark.parametrize("data", {**BAD_OPENINGS, **BAD_MESSAGES}.values(), ids=[*BAD_OPENINGS, *BAD_MESSAGES])
async def test_malformed_data_ends_only_its_own_connection(server: LedgerServer, raw: Raw, data: bytes) -> None:
    """The server drops a connection with malformed data, logs it, and continues to serve other connections."""
    async with RemoteJobs(await WireTransport.connect(UnixEndpoint(socket_of(server)))) as other:
        with capture_logs() as lines:
            await raw.say(data)
            answer = await raw.rest()
        assert [line["event"] for line in lines if line["event"] == "connection_dropped"] == ["connection_dropped"]
        assert answer in ((b"",) if data in BAD_OPENINGS.values() else (OPENED, b""))
        assert (await other.stats()).epoch == 1
        assert len(connections(server)) == 1


@pytest.mark.parametrize(
    "data", [b"X", b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01"]
)
async def test_other_protocols_end_at_their_first_byte(server: LedgerServer, data: bytes) -> None:
    """The socket drops a connection that begins with another protocol, without an answer, and logs the first byte."""
    raw = await raw_to(server, "socket")
    with capture_logs() as lines:
        await raw.say(data)
        assert await raw.rest() == b""
    (line,) = lines
    assert (line["event"], repr(data[:1]) in line["message"]) == ("connection_dropped", True)


async def test_http_on_the_port_of_the_wire_is_answered_as_http(server: LedgerServer) -> None:
    """A server without HTTP answers a request on the port of the wire with an HTTP error that says so."""
    raw = await raw_to(server, "tcp")
    await raw.say(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    answer = await raw.rest()
    assert answer.startswith(b"HTTP/1.1 404")
    assert b"--no-http" in answer


async def test_clients_and_workers_of_release_0_1_are_told_to_upgrade(server: LedgerServer) -> None:
    """A process of release 0.1 gets an error in its own protocol, which a worker does not retry."""
    client, worker = await raw_to(server, "socket"), await raw_to(server, "socket")
    await client.say(b"C" + framed(pb.Call(id=1, method="JobService/GetJob").SerializeToString()))
    reply = pb.Reply.FromString(await client.message())
    assert (reply.id, reply.code, reply.reason) == (1, "FAILED_PRECONDITION", "CLIENT_TOO_OLD")
    await worker.say(b"W" + framed(pb.WorkerMessage(hello=pb.Hello(worker_id="w")).SerializeToString()))
    ending = pb.CoordinatorMessage.FromString(await worker.message()).ending
    assert (ending.code, ending.reason) == ("INVALID_ARGUMENT", "CLIENT_TOO_OLD")
    assert reply.message == ending.message
    assert "install the same release" in ending.message
    assert await client.rest() == await worker.rest() == b""


@pytest.mark.parametrize(
    ("data", "code", "reason"),
    [
        (opening("calls", VERSION + 1, VERSION + 3), "UNIMPLEMENTED", "WIRE_VERSION"),
        (opening("calls", 0, VERSION - 1), "UNIMPLEMENTED", "WIRE_VERSION"),
        (opening("chess"), "INVALID_ARGUMENT", "PURPOSE_INVALID"),
    ],
    ids=["newer", "older", "purpose"],
)
async def test_opening_that_is_refused_is_told_why(raw: Raw, data: bytes, code: str, reason: str) -> None:
    """A client without a common version, or with an unknown purpose, gets the reason; what follows is not read."""
    with capture_logs() as lines:
        await raw.say(data + call(1, STATS))
        opened = await raw.opened()
        assert await raw.rest() == b""
    assert (opened.version, opened.code, opened.reason, opened.program) == (0, code, reason, __version__)
    assert [(line["event"], line["reason"]) for line in lines] == [("refused", reason)]


@pytest.mark.parametrize(
    "data",
    [
        opening(),
        opening("calls", 0, VERSION + 8),
        opening("calls", VERSION, VERSION, "", "program", -1, "new", {"a": 1}),
    ],
    ids=["short", "several-versions", "longer"],
)
async def test_opening_of_another_release_is_understood(raw: Raw, data: bytes) -> None:
    """An opening may lack optional elements or have new ones at its end, and the common version is chosen."""
    await raw.say(data + call(1, STATS))
    assert await raw.opened() == Opened(VERSION, program=__version__)
    assert (await raw.reply()).id == 1


@pytest.mark.parametrize(
    "half",
    [
        MAGIC[:2],
        opening()[:-1],
        opening() + b"\0\0",
        opening() + call(1, STATS)[:-3],
        opening("work") + b"\x00\x00\x00\x09abc",
    ],
    ids=["magic", "opening", "length", "call", "worker"],
)
async def test_half_a_message_ends_with_its_connection(raw: Raw, half: bytes) -> None:
    """The server closes and logs a connection that ends in the middle of a message or of the opening."""
    with capture_logs() as lines:
        await raw.say(half)
        raw.shut()
        assert await raw.rest() in (OPENED, b"")
    assert "in the middle of a message" in lines[-1]["message"]


async def test_message_may_come_byte_by_byte_and_many_in_one_piece(raw: Raw) -> None:
    """The server reads an opening and messages that arrive byte by byte, and several that arrive at once."""
    for byte in opening() + call(5, STATS):
        await raw.say(bytes([byte]))
    assert (await raw.opened()).version == VERSION
    assert (await raw.reply()).id == 5
    await raw.say(call(6, STATS) + call(7, STATS) + call(8, STATS)[:10])
    assert [(await raw.reply()).id for _ in range(2)] == [6, 7]
    await raw.say(call(8, STATS)[10:])
    assert (await raw.reply()).id == 8


async def test_call_of_another_release_is_understood(raw: Raw) -> None:
    """A call may lack the request of a method without arguments, and have new elements at its end."""
    await raw.say(opening() + framed(encode([1, "jobs.get", ["x", "new"], "new"])) + framed(encode([2, "jobs.get"])))
    await raw.opened()
    failures = {(reply := await raw.reply()).id: decode_failure(reply.body).code for _ in range(2)}
    assert failures == {1: "NOT_FOUND", 2: "INVALID_ARGUMENT"}


async def test_stream_over_a_conversation_is_marked_and_can_be_called_off(server: LedgerServer, raw: Raw) -> None:
    """Messages of a stream are marked as continued, and a cancel ends the stream."""
    await raw.say(opening() + call(1, "feed", None))
    await raw.opened()
    assert (await raw.reply()).kind == MORE
    await raw.say(framed(encode([1, ""])))
    await server.jobs.submit([Template("brew")], [JobDraft()])
    await raw.say(call(2, STATS))
    replies = [await raw.reply()]
    while replies[-1].id != 2:
        replies.append(await raw.reply())
    assert all(reply.kind == MORE for reply in replies[:-1])
    assert server.feed._readers == set()


async def test_client_that_reads_nothing_is_not_read_either(server: LedgerServer, raw: Raw) -> None:
    """The server stops reading from a client that does not read, and answers all its calls once it reads."""
    submitted = await server.jobs.submit([Template("brew")], [JobDraft(payload=b"x" * 1_000_000)])
    calls = [call(number, "jobs.payload", submitted.job_ids[0]) for number in range(1, 41)]
    await raw.say(opening() + b"".join(calls))
    async with asyncio.timeout(30):
        while not any(connection._holds for connection in connections(server)):
            await server.jobs.get(submitted.job_ids[0])
    await raw.opened()
    assert sorted([(await raw.reply()).id for _ in range(40)]) == list(range(1, 41))
    assert not any(connection._holds for connection in connections(server))


async def test_client_that_reads_nothing_delays_no_stop(
    server: LedgerServer, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that stops drops a client with unread replies after the grace."""
    monkeypatch.setattr(ledger_server, "GRACE_S", 0.01)
    submitted = await server.jobs.submit([Template("brew")], [JobDraft(payload=b"x" * 1_000_000)])
    await raw.say(opening() + b"".join(call(number, "jobs.payload", submitted.job_ids[0]) for number in range(1, 41)))
    async with asyncio.timeout(30):
        while not any(connection._holds for connection in connections(server)):
            await server.jobs.get(submitted.job_ids[0])
    await server.stop()
    assert connections(server) == []
    await raw.rest()


@pytest.mark.parametrize("begun", [b"", MAGIC, opening()[:-1]], ids=["nothing", "magic", "half-an-opening"])
async def test_connection_without_an_opening_ends_with_the_server(server: LedgerServer, raw: Raw, begun: bytes) -> None:
    """A server that stops closes connections whose opening has not arrived."""
    if begun:
        await raw.say(begun)
    await asyncio.sleep(0)
    await server.stop()
    assert await raw.rest() == b""


@pytest.mark.parametrize("kind", KINDS)
async def test_too_many_calls_under_way_are_refused(
    server: LedgerServer, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A call above the limit of concurrent calls is RESOURCE_EXHAUSTED, and the calls under way continue."""
    monkeypatch.setattr(conversation, "CALLS_MAX", 2)
    remote = RemoteJobs(await WireTransport.connect(endpoint_of(server, kind)))
    job_id = (await server.jobs.submit([Template("brew")], [JobDraft()])).job_ids[0]
    waiting = [asyncio.create_task(remote.settled(job_id)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(ResourceExhaustedError) as caught:
        await remote.settled(job_id)
    assert caught.value.reason == "TOO_MANY_CALLS"
    await server.jobs.cancel(job_id, "")
    assert [job.id for job, _ in await asyncio.gather(*waiting)] == [job_id] * 2
    await remote.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_too_many_connections_are_refused(server: LedgerServer, kind: str) -> None:
    """A connection above the limit is refused as RESOURCE_EXHAUSTED, and accepted once another one has ended."""
    for service in (server._socket._service, server.public_server._wire):
        service._connections_max = 1
    first = await raw_to(server, kind)
    await first.say(opening())
    assert (await first.opened()).version == VERSION
    second = await raw_to(server, kind)
    await second.say(opening())
    assert (await second.opened()).reason == "TOO_MANY_CONNECTIONS"
    assert await second.rest() == b""
    first.shut()
    assert await first.rest() == b""
    third = await raw_to(server, kind)
    await third.say(opening())
    assert (await third.opened()).version == VERSION
    third.close()


async def test_template_that_a_draft_does_not_have_is_refused(raw: Raw) -> None:
    """A draft with a template index outside of the request is refused, and the other drafts are accepted."""
    drafts = [JobDraft(template=-1), JobDraft(template=1), JobDraft(), JobDraft(template=(1 << 64) - 1)]
    await raw.say(opening() + call(1, "jobs.submit", [Template("brew")], drafts))
    await raw.opened()
    submitted = SUBMIT.decode_response((await raw.reply()).body)
    assert {index: refusal.code for index, refusal in submitted.refusals.items()} == dict.fromkeys(
        (0, 1, 3), Code.INVALID_ARGUMENT
    )
    assert list(map(bool, submitted.job_ids)) == [False, False, True, False]


async def test_worker_that_does_not_introduce_itself_is_refused(raw: Raw) -> None:
    """A worker whose first message has no introduction is INVALID_ARGUMENT, and its session ends."""
    await raw.say(opening("work") + framed(encode(WorkerMessage(credits=1))))
    await raw.opened()
    push = decode_push(await raw.message())
    assert (push.kind, decode_failure(push.body).reason) == (ERROR, "HELLO_MISSING")
    assert await raw.rest() == b""


async def test_values_that_no_client_sends_are_refused(raw: Raw) -> None:
    """The server refuses numbers and texts out of their range as INVALID_ARGUMENT, and the connection stays open."""
    template, huge = Template("brew"), (1 << 64) - 1
    replaced = msgspec.structs.replace
    wrong: list[tuple[Any, ...]] = [
        ("jobs.submit", [replaced(template, priority=-1)], [JobDraft()]),
        ("jobs.submit", [replaced(template, timeout_ms=huge)], [JobDraft()]),
        ("jobs.submit", [template], [JobDraft(delay_ms=-1)]),
        ("jobs.submit", [template] * (limits.BATCH_JOBS_MAX + 1), [JobDraft()]),
        ("jobs.submit", [template], []),
        ("jobs.submit", [replaced(template, simulated=True)], [JobDraft()]),
        ("jobs.submit", [["brew", "teas", "high"]], [JobDraft()]),
        ("jobs.get", "x" * 10_000),
        ("jobs.get", None),
        ("jobs.find", {"states": [99]}, "", 10),
        ("jobs.find", {}, "no cursor", 10),
        ("feed", -1),
        ("admin.set_queue_mode", "default", 99, ""),
        ("admin.set_queue_mode", "no queue", 1, ""),
        ("schedules.get", ""),
        ("jobs.get", msgspec.Raw(b"\xa2\xff\xfe")),
    ]
    await raw.say(opening() + b"".join(call(number, *each) for number, each in enumerate(wrong, 1)))
    await raw.opened()
    for _ in wrong:
        reply = await raw.reply()
        assert reply.kind == ERROR, wrong[reply.id - 1]
        assert decode_failure(reply.body).code == "INVALID_ARGUMENT", wrong[reply.id - 1]
    await raw.say(call(99, STATS))
    assert (await raw.reply()).id == 99


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
        await WireTransport.connect(UnixEndpoint(socket_of(first)))
    assert caught.value.reason == "UNREACHABLE"
    second = await start()
    async with RemoteJobs(await WireTransport.connect(UnixEndpoint(socket_of(second)))) as remote:
        assert (await remote.stats()).epoch == 2


async def test_file_in_the_way_is_left_alone(server: LedgerServer, tmp_path: Path) -> None:
    """A server refuses to start if a file that is no socket is at the socket's path, and does not delete it."""
    path = tmp_path / SOCKET_NAME
    path.write_text("mine")
    with pytest.raises(FailedPreconditionError, match="in the way"):
        await SocketServer(server.backend, LeaseTerms(0, 0)).start(path)
    assert path.read_text() == "mine"


async def test_path_longer_than_a_socket_may_have_works(start: Start, tmp_path: Path) -> None:
    """Clients and workers can connect to a server in a directory with a path longer than a socket's limit."""
    folder = tmp_path.joinpath(*["a-rather-long-name-of-a-folder" * 3] * 3)
    folder.mkdir(parents=True)
    server = await start(data=str(folder))
    path = folder / SOCKET_NAME
    assert len(os.fsencode(path)) > 300
    async with RemoteJobs(await WireTransport.connect(UnixEndpoint(path))) as remote:
        assert (await remote.stats()).epoch == 1
    session = await WireWork(UnixEndpoint(path)).open(Introduction("w", frozenset({"brew"})))
    assert (await session.next()).lease_ms == server._settings.lease_ms
    await session.close()


@pytest.mark.parametrize("name", ["nothing-here.sock", "no-folder/holdfast.sock"])
async def test_connection_without_a_server_is_unavailable(tmp_path: Path, name: str) -> None:
    """A connection attempt without a server is UNAVAILABLE, with the directory in the message."""
    path = tmp_path / name
    for connect in (
        lambda: WireTransport.connect(UnixEndpoint(path)),
        lambda: WireWork(UnixEndpoint(path)).open(Introduction("w", frozenset())),
    ):
        with pytest.raises(UnavailableError, match=f"no server is running for '{path.parent}'") as caught:
            await connect()
        assert caught.value.reason == "UNREACHABLE"
