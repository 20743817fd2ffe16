"""Limits of the wire: data before the admission of a caller, number of connections, and malformed data."""

import asyncio
import gc
import socket
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest
from structlog.testing import capture_logs

from holdfast import limits
from holdfast.client.access import Access
from holdfast.client.endpoints import TcpEndpoint
from holdfast.client.wire_transport import WireTransport
from holdfast.client.wire_work import WireWork
from holdfast.core.model import Extra, Template
from holdfast.errors import ResourceExhaustedError, UnavailableError
from holdfast.ledger.sessions import SessionPush
from holdfast.ports import Directive, Introduction, JobDraft, JobQuery
from holdfast.server import descriptors
from holdfast.server.auth import tokens
from holdfast.server.auth.permissions import Scope
from holdfast.server.http import protocol
from holdfast.server.http import server as http_server
from holdfast.server.ledger_server import LedgerServer
from holdfast.server.unix_socket import SOCKET_NAME
from holdfast.server.wire.connection import WireConnection, WireService
from holdfast.server.wire.reply_budget import REPLY_BYTES_MAX
from holdfast.server.wire.worker_session import ServedWorker
from holdfast.wire import messages as wire
from holdfast.wire import methods
from holdfast.wire.frames import framed
from holdfast.wire.methods import NOTHING, WireMethod
from tests.integration.conftest import Start
from tests.integration.raw_wire import RawWire, raw_socket, raw_wire

IDLE = 3_000
#: Upper bound of the bytes that the event loop reads from a connection at once.
READ_BYTES_MAX = 256 * 1_024
BEGUN = wire.MAGIC + (wire.OPENING_BYTES_MAX).to_bytes(4, "big")
#: The beginnings of connections whose opening never arrives.
UNFINISHED = {
    "silent": b"",
    "magic": wire.MAGIC,
    "length": BEGUN,
    "almost": BEGUN + bytes(wire.OPENING_BYTES_MAX - 1),
}


class Received:
    """The bytes that the server has read from connections of the wire."""

    def __init__(self) -> None:
        self.bytes = 0


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> Received:
    counted, receive = Received(), WireConnection.data_received

    def data_received(connection: WireConnection, data: bytes) -> None:
        counted.bytes += len(data)
        receive(connection, data)

    monkeypatch.setattr(WireConnection, "data_received", data_received)
    return counted


@pytest.fixture
async def server(start: Start, tmp_path: Path) -> LedgerServer:
    """A server with one token."""
    tokens.create(tmp_path / "data" / tokens.FILE_NAME, "all", [Scope.ADMIN], now_ms=1)
    return await start(no_http=False, http_port=0)


@pytest.fixture
def token(server: LedgerServer) -> str:
    """A token for everything."""
    path = Path(server._settings.data) / tokens.FILE_NAME
    return tokens.create(path, "client", [Scope.ADMIN], now_ms=1)


def admitted(server: LedgerServer) -> int:
    """The number of connections of the wire whose callers were admitted."""
    return len(server.public_server._wire._connections)


def waiting(server: LedgerServer) -> int:
    """The number of connections of the HTTP port that are no admitted connections of the wire."""
    return len(server.public_server._http._shared.connections)


# -- before authentication


async def test_opening_has_a_size_limit(server: LedgerServer, received: Received) -> None:
    """The server closes a connection that announces an opening of 5 MiB, and reads none of its 5 MiB."""
    size = limits.MESSAGE_BYTES_MAX
    async with raw_wire(server.http_address) as line:
        line.send(wire.MAGIC + size.to_bytes(4, "big"))
        assert await line.rest() == b""
    assert received.bytes == len(wire.MAGIC) + 4
    async with raw_wire(server.http_address) as line:
        line.send(wire.MAGIC + size.to_bytes(4, "big") + bytes(size))
        await line.rest()
    assert received.bytes <= READ_BYTES_MAX
    assert admitted(server) == waiting(server) == 0


@pytest.mark.parametrize("size", [wire.OPENING_BYTES_MAX + 1, 0xFFFFFFFF])
async def test_opening_above_the_limit_is_logged_and_not_answered(server: LedgerServer, size: int) -> None:
    """An opening above its limit is dropped without an answer, and the log says how large it was to be."""
    with capture_logs() as logs:
        async with raw_wire(server.http_address) as line:
            line.send(wire.MAGIC + size.to_bytes(4, "big"))
            assert await line.rest() == b""
    (dropped,) = [log for log in logs if log["event"] == "connection_dropped"]
    assert f"at most {wire.OPENING_BYTES_MAX} bytes, got {size}" in dropped["message"]


async def test_largest_opening_is_read(server: LedgerServer, token: str) -> None:
    """An opening of exactly the limit is admitted."""
    empty = len(wire.encode(wire.Opening(1, 1, wire.CALLS, token, "x" * 1_000)))
    program = "x" * (1_000 + wire.OPENING_BYTES_MAX - empty)
    opening = wire.encode(wire.Opening(1, 1, wire.CALLS, token, program))
    assert len(opening) == wire.OPENING_BYTES_MAX
    async with raw_wire(server.http_address) as line:
        line.send(wire.MAGIC + framed(opening))
        assert wire.decode_opened(await line.message()).version == wire.VERSION


async def test_nothing_after_a_refused_opening_is_read(server: LedgerServer, received: Received) -> None:
    """A caller without a token makes the server read one piece of its data, however much it sends."""
    refused = wire.MAGIC + framed(wire.encode(wire.Opening(1, 1, wire.CALLS)))
    body = framed(wire.encode((1, methods.SUBMIT.name, bytes(limits.MESSAGE_BYTES_MAX - 100))))
    for _ in range(3):
        async with raw_wire(server.http_address) as line:
            line.send(refused + body * 3)
            await line.rest()
    assert received.bytes <= 3 * READ_BYTES_MAX
    assert admitted(server) == 0


@pytest.mark.parametrize("begun", UNFINISHED.values(), ids=UNFINISHED)
async def test_opening_that_never_ends_is_given_up(
    server: LedgerServer, token: str, monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    """A connection whose opening does not arrive is closed after the limit of HTTP heads, an idle caller is not."""
    async with raw_wire(server.http_address) as kept:
        assert (await kept.open(token=token)).version == wire.VERSION
        monkeypatch.setattr(protocol, "_HEAD_S", 0.05)
        monkeypatch.setattr(http_server, "_SWEEP_S", 0.02)
        async with raw_wire(server.http_address) as line:
            line.send(begun)
            assert await line.rest() == b""
        assert waiting(server) == 0
        kept.call(1, methods.STATS, NOTHING)
        assert (await kept.reply()).kind == wire.LAST


async def test_opening_that_trickles_in_is_given_up_as_well(
    server: LedgerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each further byte of an opening does not extend its time."""
    monkeypatch.setattr(protocol, "_HEAD_S", 0.05)
    monkeypatch.setattr(http_server, "_SWEEP_S", 0.02)
    async with raw_wire(server.http_address) as line:
        line.send(BEGUN)
        ending = asyncio.ensure_future(line.rest())
        while not ending.done():
            line.send(b"\x90")
            await asyncio.wait([ending], timeout=0.01)
        assert await ending == b""


@asynccontextmanager
async def idle_connections(address: str, begun: bytes) -> AsyncIterator[list[asyncio.StreamWriter]]:
    """Many connections that send this much and nothing else."""
    host, _, port = address.rpartition(":")
    writers = []
    try:
        for _ in range(IDLE):
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(begun)
            writers.append(writer)
        yield writers
    finally:
        for writer in writers:
            writer.transport.abort()


@pytest.mark.parametrize("begun", UNFINISHED.values(), ids=UNFINISHED)
async def test_idle_connections_do_not_keep_new_clients_out(server: LedgerServer, token: str, begun: bytes) -> None:
    """With 3,000 idle connections, admitted ones stay, new clients and workers are admitted, and jobs run."""
    access = Access(token=token)
    endpoint = TcpEndpoint(server.http_address, access)
    carrier = await WireTransport.connect(endpoint)
    session = await WireWork(endpoint).open(Introduction("early", frozenset({"echo"})))
    async with idle_connections(server.http_address, begun):
        bound = server.public_server._http._shared.connections_max
        assert waiting(server) <= bound < IDLE
        later = await WireTransport.connect(TcpEndpoint(server.address, access))
        late = await WireWork(endpoint).open(Introduction("late", frozenset({"tea"})))
        assert admitted(server) == 4
        for caller, kind, worker in ((carrier, "echo", session), (later, "tea", late)):
            request = methods.Submission([Template(kind)], [JobDraft()])
            (job_id,) = (await caller.call(methods.SUBMIT, request, None)).job_ids
            await worker.want(1)
            while not (directive := await worker.next()).leases:
                pass
            assert directive.leases[0].job_id == job_id
        assert waiting(server) <= bound
    for one in (session, late):
        await one.close()
    for caller in (carrier, later):
        assert caller.is_connected
        await caller.close()


# -- connections

FEW = 4


async def test_connections_above_the_limit_are_refused(start: Start) -> None:
    """A connection above the limit gets RESOURCE_EXHAUSTED, and is admitted once another one has ended."""
    server = await start(no_http=False, http_port=0, grpc_connections=FEW)
    async with AsyncExitStack() as stack:
        lines = await opened(stack, server, FEW)
        for purpose in (wire.CALLS, wire.WORK):
            async with raw_wire(server.http_address) as line:
                refused = await line.open(purpose)
                assert (refused.version, refused.code, refused.reason) == (
                    0,
                    "RESOURCE_EXHAUSTED",
                    "TOO_MANY_CONNECTIONS",
                )
                assert await line.rest() == b""
        assert admitted(server) == FEW
        lines[0].writer.transport.abort()
        while admitted(server) == FEW:  # noqa: ASYNC110 - the end arrives within a few turns of the loop
            await asyncio.sleep(0)
        await opened(stack, server, 1)
        for line in lines[1:]:
            line.call(1, methods.STATS, NOTHING)
            assert (await line.reply()).kind == wire.LAST


async def opened(stack: AsyncExitStack, server: LedgerServer, count: int) -> list[RawWire]:
    """Opens connections for calls."""
    lines = [await stack.enter_async_context(raw_wire(server.http_address)) for _ in range(count)]
    for line in lines:
        assert (await line.open()).version == wire.VERSION
    return lines


async def test_clients_and_workers_retry_above_the_limit(start: Start) -> None:
    """The error of a connection above the limit is retryable, for clients and for workers."""
    server = await start(no_http=False, http_port=0, grpc_connections=FEW)
    endpoint = TcpEndpoint(server.http_address)
    async with AsyncExitStack() as stack:
        await opened(stack, server, FEW)
        with pytest.raises(ResourceExhaustedError, match="too many connections") as caught:
            await WireTransport.connect(endpoint)
        assert caught.value.retryable
        with pytest.raises(UnavailableError, match="too many connections"):
            await WireWork(endpoint).open(Introduction("w", frozenset({"echo"})))


async def test_refused_callers_leave_nothing_behind(server: LedgerServer, token: str) -> None:
    """A caller that is refused after its token was checked is not checked again and again."""
    service = server.public_server._wire
    service._connections_max = 0
    guard = server.public_server.protection.guard
    for purpose in (wire.CALLS, wire.WORK, wire.CALLS):
        async with raw_wire(server.http_address) as line:
            assert (await line.open(purpose, token)).reason == "TOO_MANY_CONNECTIONS"
            assert await line.rest() == b""
    assert not guard._visits
    assert admitted(server) == waiting(server) == 0


async def test_connections_leave_descriptors_for_the_journal(
    server: LedgerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections use at most nine sixteenths of the process's descriptors, whatever is configured."""
    monkeypatch.setattr(descriptors, "descriptor_limit", lambda: 100)
    for configured, bound in ((10, 10), (56, 56), (16_384, 56)):
        assert admitted_by(WireService(server.backend, server.terms, connections_max=configured)) == bound


def admitted_by(service: WireService) -> int:
    """The number of connections that a service admits."""
    for count in range(100):
        connection = WireConnection(service, "test")
        try:
            service.admitted(connection, wire.Opening(1, 1, wire.CALLS), lambda _: None)
        except ResourceExhaustedError:
            return count
        service.joined(connection)
    raise AssertionError("the service admits any number of connections")


async def test_socket_and_port_share_their_connections(server: LedgerServer, token: str) -> None:
    """Connections of the socket and of the port count together, so that they leave descriptors for the journal."""
    server.public_server.budget.most = FEW
    async with AsyncExitStack() as stack:
        for number in range(FEW):
            raw = raw_wire(server.http_address) if number % 2 else raw_socket(server.socket)
            line = await stack.enter_async_context(raw)
            assert (await line.open(token=token)).version == wire.VERSION
        for raw in (raw_wire(server.http_address), raw_socket(server.socket)):
            async with raw as refused:
                assert (await refused.open(token=token)).reason == "TOO_MANY_CONNECTIONS"
        assert server.public_server.budget.count == FEW
    while server.public_server.budget.count:  # noqa: ASYNC110 - the ends arrive within a few turns of the loop
        await asyncio.sleep(0)


async def test_server_notices_that_a_machine_is_gone(server: LedgerServer, token: str) -> None:
    """The system probes admitted connections, because a caller that waits sends nothing."""
    async with raw_wire(server.http_address) as line:
        await line.open(token=token)
        (connection,) = server.public_server._wire._connections
        assert connection._transport is not None
        served = connection._transport.get_extra_info("socket")
        assert served.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert served.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) > 0


# -- clients that do not read


async def test_responses_wait_for_a_client_that_does_not_read(server: LedgerServer, token: str) -> None:
    """The server encodes a few of 400 MiB of responses at a time, and sends all of them once the client reads."""
    count, payload = 400, bytes(limits.PAYLOAD_BYTES_MAX)
    (job_id,) = (await server.jobs.submit([Template("echo")], [JobDraft(payload=payload)])).job_ids
    async with raw_wire(server.http_address) as line, raw_wire(server.http_address) as other:
        await line.open(token=token)
        (connection,) = server.public_server._wire._connections
        await other.open(token=token)
        line.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for number in range(1, count + 1):
            line.call(number, methods.PAYLOAD, methods.OneJob(job_id))
        most = 0
        for number in range(1, 101):  # many turns of the server's loop
            other.call(number, methods.STATS, NOTHING)
            await other.reply()
            assert connection._transport is not None
            most = max(most, connection._transport.get_write_buffer_size() + connection._pending_bytes)
        assert not connection.is_writable
        assert most <= 4 * limits.PAYLOAD_BYTES_MAX
        line.writer.transport.resume_reading()  # type: ignore[attr-defined]
        replies = [await line.reply() for _ in range(count)]
    assert sorted(reply.id for reply in replies) == list(range(1, count + 1))
    assert {(reply.kind, len(reply.body)) for reply in replies} == {(wire.LAST, len(payload) + 5)}


async def test_client_that_does_not_read_can_leave(server: LedgerServer, token: str) -> None:
    """The end of a client that has not read its responses ends its calls, and leaves no task."""
    (job_id,) = (await server.jobs.submit([Template("echo")], [JobDraft(payload=bytes(1 << 20))])).job_ids
    tasks = len(asyncio.all_tasks())
    async with raw_wire(server.http_address) as line:
        await line.open(token=token)
        (connection,) = server.public_server._wire._connections
        line.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for number in range(1, 50):
            line.call(number, methods.PAYLOAD, methods.OneJob(job_id))
        while connection.is_writable:  # noqa: ASYNC110 - the calls arrive within a few turns of the loop
            await asyncio.sleep(0)
    while admitted(server) or len(asyncio.all_tasks()) > tasks:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0)


#: The largest labels of one job.
LABELS = tuple((f"{number}", "x" * limits.LABEL_VALUE_CHARS_MAX) for number in range(limits.LABELS_MAX))
#: The memory for replies to one caller: the budget of the replies, one that is encoded, and requests.
REPLIES_MAX = REPLY_BYTES_MAX + 3 * limits.MESSAGE_BYTES_MAX


class MemoryPeak:
    """The largest size of all Python objects since the start of a block, beyond those at its start."""

    def __enter__(self) -> Self:
        gc.collect()
        tracemalloc.start()
        return self

    def __exit__(self, *_: object) -> None:
        tracemalloc.stop()

    @property
    def bytes(self) -> int:
        return tracemalloc.get_traced_memory()[1]


#: Methods that return much, each with a request for the most.
LARGE: dict[str, tuple[WireMethod[Any, Any], Callable[[str], Any]]] = {
    "find": (methods.FIND, lambda _: methods.JobSearch(JobQuery(), "", 50)),
    "get": (methods.GET, methods.OneJob),
    "payload": (methods.PAYLOAD, methods.OneJob),
    "result": (methods.RESULT, methods.OneJob),
    "settled": (methods.SETTLED, methods.OneJob),
    "history": (methods.HISTORY, methods.OneJob),
    "watch": (methods.WATCH, methods.OneJob),
    "feed": (methods.FEED, lambda _: methods.FeedStart(0)),
    "submit": (methods.SUBMIT, lambda _: methods.Submission([Template("t")], [JobDraft(1)] * limits.BATCH_JOBS_MAX)),
}


@pytest.mark.parametrize("kind", LARGE)
async def test_replies_to_a_client_that_does_not_read_take_limited_memory(start: Start, kind: str) -> None:
    """Hundreds of calls whose replies nobody reads take no more memory than the budget, whatever they return."""
    server = await start(no_http=False, http_port=0)
    await fill(server)
    job_id = await canceled_job(server)
    method, request_for = LARGE[kind]
    async with raw_wire(server.http_address) as line, raw_wire(server.http_address) as other:
        await line.open()
        await other.open()
        line.writer.transport.pause_reading()  # type: ignore[attr-defined]
        request = framed(wire.encode((1_000, method.name, request_for(job_id))))
        count = min(400, 8 * limits.MESSAGE_BYTES_MAX // len(request))
        with MemoryPeak() as peak:
            for number in range(1_000, 1_000 + count):
                line.call(number, method, request_for(job_id))
            for number in range(1, 301):  # many turns of the server's loop
                other.call(number, methods.STATS, NOTHING)
                await other.reply()
            assert peak.bytes <= REPLIES_MAX
        line.writer.transport.resume_reading()  # type: ignore[attr-defined]
        answered = {(await line.reply()).id for _ in range(count)}
    assert answered <= set(range(1_000, 1_000 + count))


async def fill(server: LedgerServer) -> None:
    """Submits 50 jobs whose labels take 3 MiB together."""
    await server.jobs.submit([Template("echo")], [JobDraft(extra=Extra(labels=LABELS)) for _ in range(50)])


async def canceled_job(server: LedgerServer) -> str:
    """The id of an ended job with the largest payload."""
    drafts = [JobDraft(payload=bytes(limits.PAYLOAD_BYTES_MAX), extra=Extra(labels=LABELS))]
    (job_id,) = (await server.jobs.submit([Template("tea")], drafts)).job_ids
    await server.jobs.cancel(job_id, "r" * limits.REASON_CHARS_MAX)
    return job_id


async def test_all_replies_arrive_once_the_client_reads(start: Start) -> None:
    """Pages that waited for their client are computed when it reads, and none of them is lost."""
    server = await start(no_http=False, http_port=0)
    await fill(server)
    async with raw_wire(server.http_address) as line:
        await line.open()
        line.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for number in range(1, 41):
            line.call(number, methods.FIND, methods.JobSearch(JobQuery(), "", 50))
        (connection,) = server.public_server._wire._connections
        while connection.is_writable:  # noqa: ASYNC110 - the calls arrive within a few turns of the loop
            await asyncio.sleep(0)
        line.writer.transport.resume_reading()  # type: ignore[attr-defined]
        replies = [await line.reply() for _ in range(40)]
    assert sorted(reply.id for reply in replies) == list(range(1, 41))
    assert {len(methods.FIND.decode_response(reply.body).jobs) for reply in replies} == {50}


# -- workers that do not read

JOBS = 48


async def greedy_worker(line: RawWire, token: str, credit: int = 1_000_000) -> None:
    """Starts a session of a worker that takes all jobs."""
    await line.open(wire.WORK, token)
    worker = Introduction("greedy", frozenset({"echo"}), slots=limits.SLOTS_MAX)
    line.send(framed(wire.encode(wire.WorkerMessage(worker, credits=credit))))
    assert wire.decode_push(await line.message()).kind == wire.LAST


async def large_jobs(server: LedgerServer, count: int) -> list[str]:
    """Submits jobs with the largest payload."""
    job_ids = list[str]()
    for _ in range(count):
        drafts = [JobDraft(payload=bytes(limits.PAYLOAD_BYTES_MAX))]
        job_ids += (await server.jobs.submit([Template("echo")], drafts)).job_ids
    return job_ids


async def test_leases_wait_for_a_worker_that_does_not_read(server: LedgerServer, token: str) -> None:
    """A worker that does not read gets no more jobs; its leases wait unencoded, and arrive when it reads."""
    async with raw_wire(server.http_address) as line:
        await greedy_worker(line, token)
        (connection,) = server.public_server._wire._connections
        line.writer.transport.pause_reading()  # type: ignore[attr-defined]
        job_ids = await large_jobs(server, JOBS)
        assert connection._transport is not None
        assert not connection.is_writable
        unsent = connection._transport.get_write_buffer_size() + connection._pending_bytes
        assert unsent <= 2 * limits.MESSAGE_BYTES_MAX
        assert (await server.admin.stats()).leases < JOBS
        line.writer.transport.resume_reading()  # type: ignore[attr-defined]
        received = list[str]()
        while len(received) < JOBS:
            received += [lease.job_id for lease in directive(await line.message()).leases]
    assert received == job_ids


def directive(message: bytes) -> Directive:
    """The directive in a message to a worker."""
    push = wire.decode_push(message)
    assert push.kind == wire.LAST
    return msgspec.msgpack.decode(push.body, type=Directive)


async def test_large_grant_is_sent_in_parts(server: LedgerServer, token: str) -> None:
    """Jobs that are granted together to a worker that does not read are encoded a message at a time."""
    job_ids = await large_jobs(server, JOBS)
    async with raw_wire(server.http_address) as line:
        await line.open(wire.WORK, token)
        (connection,) = server.public_server._wire._connections
        line.writer.transport.pause_reading()  # type: ignore[attr-defined]
        worker = Introduction("greedy", frozenset({"echo"}), slots=limits.SLOTS_MAX)
        line.send(framed(wire.encode(wire.WorkerMessage(worker, credits=JOBS))))
        while (await server.admin.stats()).leases < JOBS or connection.is_writable:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0)
        assert connection._transport is not None
        unsent = connection._transport.get_write_buffer_size() + connection._pending_bytes
        assert unsent <= 2 * limits.MESSAGE_BYTES_MAX
        # The end of the grants is announced after the last of them, which waits.
        line.send(framed(wire.encode(wire.WorkerMessage(is_recalling=True))))
        line.writer.transport.resume_reading()  # type: ignore[attr-defined]
        received = list[str]()
        while not (told := directive(await line.message())).is_recalled:
            received += [lease.job_id for lease in told.leases]
    assert received + [lease.job_id for lease in told.leases] == job_ids


async def test_leases_that_end_before_they_are_sent_are_not_kept(server: LedgerServer, token: str) -> None:
    """A lease that was revoked while its worker did not read is neither kept nor sent, and its slot gets a job."""
    job_ids = await large_jobs(server, JOBS)
    async with raw_wire(server.http_address) as line:
        await greedy_worker(line, token, credit=0)
        (connection,) = server.public_server._wire._connections
        handler = connection._handler
        assert isinstance(handler, ServedWorker)
        line.writer.transport.pause_reading()  # type: ignore[attr-defined]
        line.send(framed(wire.encode(wire.WorkerMessage(credits=JOBS))))
        while not handler._leases or connection.is_writable:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0)
        unsent = list(handler._leases)
        (purged,) = [token for token in unsent if handler._leases[token].job_id == job_ids[-1]]
        session = handler._session
        assert session is not None
        assert session.credits == 0
        session.push(SessionPush(revoked=[purged]))
        assert list(handler._leases) == unsent[:-1]
        assert (session.credits, handler._notices) == (1, [])
        # A lease that the worker knows is announced as before.
        session.push(SessionPush(revoked=[purged, SENT]))
        assert (session.credits, handler._notices) == (1, [SessionPush(revoked=[purged, SENT])])
        session.push(SessionPush(revoked=[unsent[-2], SENT]))
        assert (session.credits, handler._notices[1:]) == (2, [SessionPush(revoked=[SENT])])
        line.writer.transport.resume_reading()  # type: ignore[attr-defined]
        received = list[str]()
        while len(received) < JOBS - 2:
            received += [lease.job_id for lease in directive(await line.message()).leases]
        assert received == job_ids[:-2]
        later = list((await server.jobs.submit([Template("echo")], [JobDraft()] * 3)).job_ids)
        received = [lease.job_id for lease in directive(await line.message()).leases]
        assert received == later[:2]
        assert session.credits == 0


#: The token of a lease that was sent.
SENT = 1 << 40


async def test_credits_that_return_are_limited(server: LedgerServer, token: str) -> None:
    """Credits of leases that ended before they were sent do not add up beyond those that a worker may have."""
    await large_jobs(server, JOBS)
    async with raw_wire(server.http_address) as line:
        await greedy_worker(line, token, credit=0)
        (connection,) = server.public_server._wire._connections
        handler = connection._handler
        assert isinstance(handler, ServedWorker)
        line.writer.transport.pause_reading()  # type: ignore[attr-defined]
        line.send(framed(wire.encode(wire.WorkerMessage(credits=JOBS))))
        while not handler._leases or connection.is_writable:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0)
        assert handler._session is not None
        handler.take(wire.encode(wire.WorkerMessage(credits=1_000_000)))
        handler._session.push(SessionPush(revoked=list(handler._leases)))
        assert not handler._leases
        assert handler._session.credits == 10 * limits.LEASES_PER_GRANT_MAX


async def test_credits_of_a_worker_are_limited(server: LedgerServer, token: str) -> None:
    """A worker cannot add up credits without end, one message at a time."""
    async with raw_wire(server.http_address) as line:
        await greedy_worker(line, token)
        (connection,) = server.public_server._wire._connections
        handler = connection._handler
        assert isinstance(handler, ServedWorker)
        assert handler._session is not None
        for _ in range(10):
            line.send(framed(wire.encode(wire.WorkerMessage(credits=1_000_000))))
            await server.admin.stats()
            assert handler._session.credits == 10 * limits.LEASES_PER_GRANT_MAX


# -- malformed data


def malformed(purpose: str) -> Iterator[bytes]:
    """Messages that no client sends."""
    yield bytes([255]) * 8  # a length above the limit
    yield (limits.MESSAGE_BYTES_MAX + 1).to_bytes(4, "big")
    yield framed(b"")
    yield framed(b"\xc1")
    yield framed(b"\x91" * 10_000)
    yield framed(wire.encode({"id": 1}))
    yield framed(wire.encode("text"))
    yield framed(b"\x92\x01\xa1\xff")
    if purpose == wire.CALLS:
        yield framed(wire.encode((0, methods.STATS.name, [])))
        yield framed(wire.encode((-1, methods.STATS.name, [])))
        yield framed(wire.encode(("1", methods.STATS.name, [])))
    else:
        yield framed(wire.encode(["w"]))
        yield framed(wire.encode([["w", ["echo"]], "many"]))


@pytest.mark.parametrize("purpose", [wire.CALLS, wire.WORK])
async def test_malformed_data_ends_its_own_connection_only(server: LedgerServer, token: str, purpose: str) -> None:
    """Malformed data ends its connection without a reply, and the journal and other connections do not change."""
    await server.admin.stats()  # answered when the event of the start is durable
    before = journal(server)
    async with raw_wire(server.http_address) as kept:
        await kept.open(token=token)
        for number, data in enumerate(malformed(purpose), 1):
            async with raw_wire(server.http_address) as line:
                await line.open(purpose, token)
                line.send(data)
                assert await line.rest() == b"", data[:20]
            kept.call(number, methods.STATS, NOTHING)
            assert (await kept.reply()).kind == wire.LAST
    assert journal(server) == before


async def test_half_a_message_at_the_end_is_logged(server: LedgerServer, token: str) -> None:
    """A connection that ends within a message is one line in the log, and has no effect."""
    before = journal(server)
    submission = methods.Submission([Template("echo")], [JobDraft(payload=bytes(1_000))])
    message = framed(wire.encode((1, methods.SUBMIT.name, submission)))
    with capture_logs() as logs:
        async with raw_wire(server.http_address) as line:
            await line.open(token=token)
            line.send(message[:-1])
            line.writer.write_eof()
            assert await line.rest() == b""
    assert [log["message"] for log in logs if log["event"] == "connection_dropped"] == [
        "the connection ended in the middle of a message"
    ]
    assert journal(server) == before


def journal(server: LedgerServer) -> dict[str, bytes]:
    """All files of the server's jobs."""
    ignored = {SOCKET_NAME, "LOCK", tokens.FILE_NAME, tokens.LOCK_NAME}
    return {path.name: path.read_bytes() for path in Path(server._settings.data).iterdir() if path.name not in ignored}


async def test_two_calls_with_one_id_end_the_connection(server: LedgerServer, token: str) -> None:
    """A call id that is in use ends the connection, because replies would be ambiguous."""
    (job_id,) = (await server.jobs.submit([Template("echo")], [JobDraft()])).job_ids
    async with raw_wire(server.http_address) as line:
        await line.open(token=token)
        for _ in range(2):
            line.call(7, methods.SETTLED, methods.OneJob(job_id))
        assert await line.rest() == b""


async def test_worker_with_too_many_slots_is_refused(server: LedgerServer, token: str) -> None:
    """A worker cannot claim more slots than a worker may have, which would break the sums that all clients read."""
    for number in range(2):
        async with raw_wire(server.http_address) as line:
            await line.open(wire.WORK, token)
            worker = Introduction(f"w{number}", frozenset({"echo"}), slots=(1 << 64) - 1)
            line.send(framed(wire.encode(wire.WorkerMessage(worker))))
            push = wire.decode_push(await line.message())
            assert push.kind == wire.ERROR
            assert wire.decode_failure(push.body).reason == "HELLO_TOO_LARGE"
            assert await line.rest() == b""
    carrier = await WireTransport.connect(TcpEndpoint(server.http_address, Access(token=token)))
    assert (await carrier.call(methods.STATS, NOTHING, None)).slots == 0
    await carrier.close()


async def test_response_that_cannot_be_encoded_is_an_error(
    server: LedgerServer, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every call gets a reply: a response that the wire cannot carry becomes INTERNAL, and the log says why."""

    async def huge() -> int:
        return 1 << 64

    monkeypatch.setattr(type(server.admin), "stats", lambda _: huge())
    with capture_logs() as logs:
        async with raw_wire(server.http_address) as line:
            await line.open(token=token)
            line.call(1, methods.STATS, NOTHING)
            assert (await line.failure())[1].code == "INTERNAL"
            line.call(2, methods.QUEUES, NOTHING)
            assert (await line.reply()).kind == wire.LAST
    assert [log["method"] for log in logs if log["event"] == "bug"] == [methods.STATS.name]
