"""Idle gRPC connections: a bounded number stays, the oldest are closed first, and those with calls are kept."""

import asyncio
import errno
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from structlog.testing import capture_logs

from holdfast import limits
from holdfast.client.access import Access
from holdfast.core.model import Template
from holdfast.errors import UnavailableError
from holdfast.ports import Introduction, JobDraft
from holdfast.server.auth import tokens
from holdfast.server.auth.permissions import Scope
from holdfast.server.grpc import connections
from holdfast.server.grpc.connections import ConnectionTable, grpc_peer
from holdfast.server.ledger_server import LedgerServer
from holdfast_lab.faults.http2 import Http2Attacker
from tests.grpc_v1.grpc_transport import GrpcCarrier
from tests.grpc_v1.remote import RemoteJobs
from tests.grpc_v1.work_session import StreamSession
from tests.grpc_v1.work_stream import StreamWork
from tests.integration.conftest import Start
from tests.integration.transports import Hearing, Patient

CONNECTIONS_MAX = 60
STRANGERS_MAX = CONNECTIONS_MAX // 4
IDLE = 100


@pytest.fixture
def token(tmp_path: Path) -> str:
    return tokens.create(tmp_path / "data" / tokens.FILE_NAME, "all", [Scope.ADMIN], now_ms=1)


def place(server: LedgerServer) -> tuple[str, int]:
    host, _, port = server.address.rpartition(":")
    return host, int(port)


class Crowd:
    """Connections that send nothing."""

    def __init__(self) -> None:
        self.ended: list[int] = []
        self._changed = asyncio.Event()

    @asynccontextmanager
    async def held(self, server: LedgerServer, count: int) -> AsyncIterator[None]:
        with ExitStack() as stack:
            sockets = [stack.enter_context(socket.create_connection(place(server))) for _ in range(count)]
            tasks = [asyncio.create_task(self._watch(number, one)) for number, one in enumerate(sockets)]
            yield
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _watch(self, number: int, one: socket.socket) -> None:
        one.setblocking(False)
        with suppress(ConnectionError):
            while await asyncio.get_running_loop().sock_recv(one, 4_096):
                pass
        self.ended.append(number)
        self._changed.set()

    async def until_ended(self, count: int) -> None:
        while len(self.ended) < count:
            self._changed.clear()
            await self._changed.wait()


async def welcomed(work: StreamWork, introduction: Introduction) -> StreamSession:
    """Opens a session as a worker does: again, as long as gRPC has not noticed that others have ended."""
    while True:
        session = await work.open(introduction)
        try:
            assert (await session.next()).lease_ms
        except UnavailableError:
            await session.close()
            await asyncio.sleep(0.01)
        else:
            return session


async def test_idle_connections_give_way_to_workers_and_clients(start: Start, token: str) -> None:
    """Beside more idle connections than allowed, a worker keeps its stream, and another worker and a client connect."""
    server = await start(grpc_connections=CONNECTIONS_MAX)
    access, crowd = Access(token=token), Crowd()
    first = await StreamWork(server.address, access).open(Introduction("first", frozenset({"brew"}), slots=1))
    assert (await first.next()).lease_ms
    async with crowd.held(server, IDLE):
        await crowd.until_ended(IDLE - STRANGERS_MAX)
        second = await welcomed(
            StreamWork(server.address, access), Introduction("second", frozenset({"brew"}), slots=1)
        )
        client = RemoteJobs(Patient(GrpcCarrier(server.address, access)), Hearing())
        assert (await client.stats()).workers == 2
        (job_id,) = (await server.jobs.submit([Template("brew")], [JobDraft()])).job_ids
        await first.want(1)
        while not (leases := (await first.next()).leases):
            pass
        assert [lease.job_id for lease in leases] == [job_id]
        await client.close()
    await first.close()
    await second.close()


async def test_oldest_strangers_go_first_and_callers_never() -> None:
    """Beyond the bound, the table closes the oldest connections without a call, and none with a call."""
    with socket.create_server(("127.0.0.1", 0), backlog=IDLE) as listening:
        port = listening.getsockname()[1]
        table = ConnectionTable(connections_max=CONNECTIONS_MAX)
        pairs: list[tuple[socket.socket, socket.socket]] = []

        async def connect(count: int) -> None:
            places = [("127.0.0.1", port)] * count
            pairs.extend((socket.create_connection(place), listening.accept()[0]) for place in places)
            await table.look()

        table.watch(port)
        await connect(1)
        table.admit(grpc_peer(*pairs[0][0].getsockname()))
        await connect(STRANGERS_MAX)
        assert not any(map(is_over, pairs))
        await connect(3)
        assert [index for index, pair in enumerate(pairs) if is_over(pair)] == [1, 2, 3]
        for pair in pairs:
            for one in pair:
                one.close()
        assert await table.look() == 0


def is_over(pair: tuple[socket.socket, socket.socket]) -> bool:
    """Whether the server's side has shut the connection down."""
    pair[0].setblocking(False)
    try:
        return pair[0].recv(1) == b""
    except BlockingIOError:
        return False


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_peers_are_written_as_grpc_does(host: str) -> None:
    """The table names a connection's peer as gRPC does."""
    server, peers = grpc.aio.server(), []

    async def handler(_: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        peers.append(context.peer())
        return b""

    rows = {"Ask": grpc.unary_unary_rpc_method_handler(handler)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("a.Service", rows),))
    shown = f"[{host}]" if ":" in host else host
    port = server.add_insecure_port(f"{shown}:0")
    await server.start()
    table = ConnectionTable()
    table.watch(port)
    async with grpc.aio.insecure_channel(f"{shown}:{port}") as channel:
        await channel.unary_unary("/a.Service/Ask", None, None)(b"")
        await table.look()
        assert table.peers == set(peers)
    await server.stop(0)


async def test_probe_gets_through_beside_requests_that_never_end(start: Start, token: str) -> None:
    """Health requests whose body does not arrive are refused, oldest first, and a probe is answered."""
    assert token
    server = await start()
    attacker = Http2Attacker(*place(server))
    for _ in range(3 * limits.OPEN_REQUESTS_MAX):
        attacker.open("/grpc.health.v1.Health/Check", 4_000_000)
    await asyncio.to_thread(attacker.push, 0.2)
    assert attacker.refused == 2 * limits.OPEN_REQUESTS_MAX
    async with grpc.aio.insecure_channel(server.address) as channel:
        reply = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        assert reply.status == health_pb2.HealthCheckResponse.SERVING
    attacker.close()


async def test_probes_that_come_together_are_all_answered(start: Start, token: str) -> None:
    """Concurrent probes are all answered, some of them after RESOURCE_EXHAUSTED and a retry."""
    assert token
    server = await start()
    async with grpc.aio.insecure_channel(server.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)

        async def probed() -> health_pb2.HealthCheckResponse.ServingStatus:
            while True:
                try:
                    return (await stub.Check(health_pb2.HealthCheckRequest())).status
                except grpc.aio.AioRpcError as error:
                    if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                        raise

        assert set(await asyncio.gather(*[probed() for _ in range(50)])) == {health_pb2.HealthCheckResponse.SERVING}


async def test_watches_of_health_are_bounded(start: Start, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server refuses health watches without a token beyond a limit."""
    assert token
    monkeypatch.setattr(limits, "OPEN_STREAMS_MAX", 2)
    server = await start()
    async with grpc.aio.insecure_channel(server.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        watches = []
        for _ in range(2):
            watches.append(stub.Watch(health_pb2.HealthCheckRequest()))
            assert (await watches[-1].read()).status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.aio.AioRpcError, match="2 streams without a token"):
            await stub.Watch(health_pb2.HealthCheckRequest()).read()
        for watch in watches:
            watch.cancel()


async def test_one_connection_has_so_many_calls_at_a_time(start: Start, token: str) -> None:
    """The server announces its limit of calls per connection, and a client with more calls gets all responses."""
    server = await start()
    client = RemoteJobs(Patient(GrpcCarrier(server.address, Access(token=token))), Hearing())
    replies = await asyncio.gather(*[client.stats() for _ in range(2 * limits.STREAMS_PER_CONNECTION_MAX)])
    assert len(replies) == 2 * limits.STREAMS_PER_CONNECTION_MAX
    await client.close()
    attacker = Http2Attacker(*place(server))
    await asyncio.to_thread(attacker.push, 0.2)
    assert attacker.streams_max == limits.STREAMS_PER_CONNECTION_MAX
    attacker.close()


async def test_connections_of_other_ports_cause_no_scan() -> None:
    """Descriptors that the last scan has found to be none of gRPC's do not make the next scan due, until it is sure."""
    table = ConnectionTable(CONNECTIONS_MAX)
    table.watch(1)
    with ExitStack() as stack:
        for _ in range(IDLE):
            for end in socket.socketpair():
                stack.enter_context(end)
        assert table._is_due()
        assert await table.look() == 0
        assert [table._is_due() for _ in range(19)].count(True) == 1


#: Scans while the process has no free descriptor, and again later; prints how many connections it closes, and the log.
EXHAUSTED = """
import asyncio, os, resource, socket
from structlog.testing import capture_logs
from holdfast.server.grpc import connections

connections._LOOK_S = 0.02

async def ticks(table, count):
    before = table._ticks
    while table._ticks < before + count:
        await asyncio.sleep(0.01)

async def main():
    listening = socket.create_server(("127.0.0.1", 0), backlog=200)
    place = listening.getsockname()
    table = connections.ConnectionTable(connections_max=60)
    table.start(place[1])
    held = [(socket.create_connection(place), listening.accept()) for _ in range(5)]
    await ticks(table, 2)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
    await ticks(table, 5)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    held += [(socket.create_connection(place), listening.accept()) for _ in range(100)]
    async with asyncio.timeout(20):
        while not table.ended:
            await asyncio.sleep(0.01)
    print(table.ended)
    await table.stop()

with capture_logs() as lines:
    asyncio.run(main())
print(*(line["event"] for line in lines))
"""


def test_moment_without_descriptors_does_not_end_the_limit() -> None:
    """After scans that found no free descriptor, strangers above the limit are closed, and the error is logged once."""
    done = subprocess.run([sys.executable, "-c", EXHAUSTED], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    ended, events = done.stdout.splitlines()
    assert int(ended) == 105 - STRANGERS_MAX
    assert events.split() == ["connections_not_counted", "connections_ended"]


async def test_error_of_a_scan_does_not_end_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected error of a scan is logged as a bug, once, and the next scan is made."""
    scans = asyncio.Semaphore(0)

    def fail() -> list[str]:
        scans.release()
        raise RuntimeError("a bug")

    monkeypatch.setattr(connections, "_LOOK_S", 0.0)
    monkeypatch.setattr(connections, "_descriptors", fail)
    table = ConnectionTable(CONNECTIONS_MAX)
    with capture_logs() as lines:
        table.start(1)
        async with asyncio.timeout(20):
            for _ in range(3):
                await scans.acquire()
        await table.stop()
    assert [line["event"] for line in lines] == ["bug"]


async def test_connection_that_could_not_be_examined_is_examined_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection for which a scan had no descriptor counts as a stranger in the next scan."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        table = ConnectionTable(CONNECTIONS_MAX)
        table.watch(listening.getsockname()[1])
        with socket.create_connection(listening.getsockname()) as one, listening.accept()[0]:
            with monkeypatch.context() as patch:
                patch.setattr(connections, "_duplicate", no_descriptor)
                with pytest.raises(OSError, match="Too many open files"):
                    await table.look()
            await table.look()
            assert grpc_peer(*one.getsockname()) in table.peers


def no_descriptor(fd: int) -> socket.socket:
    raise OSError(errno.EMFILE, f"Too many open files for {fd}")
