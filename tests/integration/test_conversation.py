"""Every method over every transport to a server, and the failures of calls."""

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from holdfast.client.blocking_transport import BlockingTransport
from holdfast.client.endpoints import TcpEndpoint, UnixEndpoint
from holdfast.client.remote import RemoteJobs
from holdfast.client.wire_transport import WireTransport, tcp_transport
from holdfast.client.wire_work import WireWork
from holdfast.core.capabilities import Capabilities
from holdfast.core.lifecycle import State
from holdfast.core.model import FIXED, BackoffRule, Extra, QueueMode, Template
from holdfast.errors import (
    Code,
    DeadlineExceededError,
    FailedPreconditionError,
    HoldfastError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
    UnimplementedError,
)
from holdfast.ledger.session_messages import LeaseTerms
from holdfast.ports import Introduction, JobDraft, JobQuery
from holdfast.server.backend import Backend
from holdfast.server.unix_socket import SocketServer
from holdfast.wire.methods import NOTHING, STATS
from tests.e2e.fleet import stable_port
from tests.integration.conftest import Start
from tests.integration.transports import (
    CARRIERS,
    CONVERSATIONS,
    REACHED,
    Remote,
    WireCalls,
    calls_to,
    endpoint_of,
    lasting_remote,
    remote_to,
    socket_of,
)

EVERY_CARRIER = pytest.mark.parametrize("kind", CARRIERS)
EVERY_CONVERSATION = pytest.mark.parametrize("kind", CONVERSATIONS)

FULL = Template("brew", "teas", 7, 4, 0, 5_000, BackoffRule(FIXED, 0, 9_000))


async def end_of(stream: AsyncIterator[object]) -> None:
    """Reads a stream to its end."""
    async for _ in stream:
        pass


async def one(remote: Remote, template: Template | None = None, **draft: object) -> str:
    """Submits one job and returns its id."""
    submitted = await remote.submit([template or Template("brew")], [JobDraft(**draft)])  # type: ignore[arg-type]
    assert not submitted.refusals
    return submitted.job_ids[0]


@EVERY_CARRIER
async def test_job_comes_back_as_it_was_submitted(start: Start, kind: str) -> None:
    """Template, keys, labels, headers, payload and due time come back as they were submitted, zeros included."""
    extra = Extra("r-1", (("a", "1"), ("b", "")), (("trace", "x"),), retry_of="earlier", unique_key="u")
    job_id = str(uuid4())
    async with remote_to(await start(), kind) as remote:
        due_ms = (await remote.stats()).now_ms + 3_600_000
        draft = JobDraft(0, b"\x00leaf", 0, due_ms, extra, job_id)
        submitted = await remote.submit([FULL], [draft])
        assert (submitted.job_ids, submitted.refusals, submitted.existing) == ([job_id], {}, frozenset())
        job = await remote.get(job_id)
        assert (job.template, job.extra, job.not_before_ms) == (FULL, extra, due_ms)
        assert await remote.payload(job_id) == b"\x00leaf"


@EVERY_CARRIER
async def test_repeated_submission_finds_the_first(start: Start, kind: str) -> None:
    """A repeated submit with the same job id, request id or unique key returns the first job, marked as existing."""
    drafts = [
        JobDraft(id=str(uuid4())),
        JobDraft(extra=Extra(request_id="r")),
        JobDraft(extra=Extra(unique_key="u")),
    ]
    async with remote_to(await start(), kind) as remote:
        first = await remote.submit([Template("brew")], drafts)
        second = await remote.submit([Template("brew")], drafts)
        assert first.job_ids == second.job_ids
        assert (first.existing, second.existing) == (frozenset(), frozenset({0, 1, 2}))


@EVERY_CARRIER
async def test_refused_jobs_of_a_batch_say_code_and_reason(start: Start, kind: str) -> None:
    """Each job of a batch is accepted or refused by itself, with the ledger's code and reason."""
    request_id = Extra(request_id="same")
    async with remote_to(await start(), kind) as remote:
        await one(remote, payload=b"first", extra=request_id)
        submitted = await remote.submit(
            [Template("brew")], [JobDraft(payload=b"other", extra=request_id), JobDraft(template=9), JobDraft()]
        )
        codes = {index: refusal.code for index, refusal in submitted.refusals.items()}
        assert codes == {0: Code.FAILED_PRECONDITION, 1: Code.INVALID_ARGUMENT}
        assert submitted.refusals[0].reason == "REQUEST_ID_REUSED"
        assert submitted.job_ids[2]


@EVERY_CARRIER
async def test_cancel_ends_a_wait_for_the_job(start: Start, kind: str) -> None:
    """A wait for a job ends when the job is canceled, and returns the reason."""
    async with remote_to(await start(), kind) as remote:
        job_id = await one(remote)
        waiting = asyncio.create_task(remote.settled(job_id))
        reply = await remote.cancel(job_id, "no milk")
        assert (reply.state, reply.was_terminal) == (State.CANCELED, False)
        job, result = await waiting
        assert (job.state, result.summary) == (State.CANCELED, "no milk")
        assert (await remote.result(job_id)).summary == "no milk"
        assert (await remote.cancel(job_id, "")).was_terminal


@EVERY_CARRIER
async def test_watch_tells_every_state_and_ends_with_the_job(start: Start, kind: str) -> None:
    """A watch sends the current state at once and ends after the last one."""
    async with remote_to(await start(), kind) as remote:
        job_id = await one(remote)
        seen = []
        async for job in remote.watch(job_id):
            seen.append(job.state)
            if job.state == State.QUEUED:
                await remote.cancel(job_id, "")
        assert seen == [State.QUEUED, State.CANCELED]


@EVERY_CARRIER
async def test_search_goes_on_from_its_cursor(start: Start, kind: str) -> None:
    """A search continues from its cursor without a gap, and a page starts at its offset."""
    async with remote_to(await start(), kind) as remote:
        drafts = [JobDraft(extra=Extra(labels=(("n", str(number % 2)),))) for number in range(9)]
        ids = (await remote.submit([Template("brew", "teas")], drafts)).job_ids
        query = JobQuery(frozenset({State.QUEUED}), "teas", "brew", {"n": "0"}, oldest_first=True)
        found, cursor = [], ""
        while True:
            part = await remote.find(query, cursor, 2)
            found += [job.id for job in part.jobs]
            cursor = part.cursor
            if not cursor:
                break
        assert sorted(found) == sorted(ids[::2])
        page = await remote.page([State.QUEUED], 3, 4, newest_first=True)
        direct = await remote.page([], 0, 9, newest_first=True)
        assert ([job.id for job in page.jobs], page.has_more) == ([job.id for job in direct.jobs[3:7]], True)


@EVERY_CARRIER
async def test_retry_explanation_and_history(start: Start, kind: str) -> None:
    """A finished job can be retried, has an explanation of its end, and has a history."""
    async with remote_to(await start(), kind) as remote:
        job_id = await one(remote, payload=b"again")
        with pytest.raises(FailedPreconditionError):
            await remote.retry(job_id)
        await remote.cancel(job_id, "why not")
        again = await remote.retry(job_id, "r-2")
        assert await remote.retry(job_id, "r-2") == again
        assert await remote.payload(again) == b"again"
        assert "why not" in (await remote.explain(job_id)).sentence
        assert [entry.what for entry in await remote.history(job_id)] == ["submitted", "canceled"]


@EVERY_CARRIER
async def test_feed_sends_past_events_and_then_new_ones(start: Start, kind: str) -> None:
    """A feed sends all events after its start position and continues with new ones."""
    async with remote_to(await start(), kind) as remote:
        first = await one(remote)
        told: list[str] = []
        async for part in remote.feed(0):
            told += [entry.job_id for entry in part.entries]
            if told == [first]:
                second = await one(remote)
            elif len(told) == 2:
                break
        assert told == [first, second]


@EVERY_CARRIER
async def test_operators_see_and_steer(start: Start, kind: str) -> None:
    """The admin calls return numbers and queues, set modes and purge, and an unknown worker is NOT_FOUND."""
    async with remote_to(await start(), kind) as remote:
        await remote.submit([Template("brew", "teas")], [JobDraft()] * 3)
        await remote.set_queue_mode("teas", QueueMode.PAUSED, "inventory")
        (queue,) = await remote.queues()
        assert (queue.name, queue.mode, queue.reason, queue.ready) == ("teas", QueueMode.PAUSED, "inventory", 3)
        assert await remote.purge("teas", "spilt") == 3
        stats = await remote.stats()
        assert (stats.states["CANCELED"], stats.leases, stats.epoch) == (3, 0, 1)
        assert await remote.workers() == []
        with pytest.raises(NotFoundError):
            await remote.drain_worker("nobody")


@EVERY_CARRIER
@pytest.mark.parametrize(
    ("job_id", "error", "reason"),
    [
        ("none-like-it", NotFoundError, "JOB_NOT_FOUND"),
        ("", InvalidArgumentError, "JOB_ID_EMPTY"),
        ("x" * 200, InvalidArgumentError, "JOB_ID_TOO_LONG"),
    ],
)
async def test_errors_keep_code_and_reason(
    start: Start, kind: str, job_id: str, error: type[HoldfastError], reason: str
) -> None:
    """An error of the ledger reaches the client with its code and reason, for calls and for streams."""
    async with remote_to(await start(), kind) as remote:
        for call in (remote.get, remote.settled, remote.explain):
            with pytest.raises(error) as caught:
                await call(job_id)
            assert caught.value.reason == reason
        with pytest.raises(error) as caught:
            await anext(aiter(remote.watch(job_id)))
        assert caught.value.reason == reason


@EVERY_CARRIER
async def test_unknown_methods_are_unimplemented(start: Start, kind: str) -> None:
    """A call of an unknown method is UNIMPLEMENTED."""
    calls = await calls_to(await start(), kind)
    with pytest.raises(UnimplementedError) as caught:
        await calls.unknown()
    assert caught.value.reason == "METHOD_UNKNOWN"
    await calls.remote.close()


@EVERY_CARRIER
async def test_body_that_is_no_message_is_refused(start: Start, kind: str) -> None:
    """A body that is no valid message is INVALID_ARGUMENT, and the connection stays open."""
    calls = await calls_to(await start(), kind)
    with pytest.raises(InvalidArgumentError) as caught:
        await calls.malformed()
    assert caught.value.reason == "MESSAGE_MALFORMED"
    assert (await calls.remote.stats()).epoch == 1
    await calls.remote.close()


@EVERY_CONVERSATION
async def test_thousands_of_calls_at_a_time_get_each_their_own_answer(start: Start, kind: str) -> None:
    """Four thousand waits and as many submits share one connection, and each gets its own response."""
    async with remote_to(await start(), kind) as remote:
        ids = (await remote.submit([Template("brew")], [JobDraft()] * 1_000)).job_ids
        waits = [asyncio.create_task(remote.settled(job_id)) for job_id in ids * 4]
        payloads = [str(number).encode() for number in range(1_000)]
        made = await asyncio.gather(*(one(remote, payload=payload) for payload in payloads))
        assert await asyncio.gather(*(remote.payload(job_id) for job_id in made)) == payloads
        assert await remote.purge("default", "") == 2_000
        assert [job.id for job, _ in await asyncio.gather(*waits)] == ids * 4


@EVERY_CONVERSATION
async def test_request_that_no_message_holds_is_refused_before_it_is_sent(start: Start, kind: str) -> None:
    """A request above the message limit is INVALID_ARGUMENT, and other calls on the connection continue."""
    async with remote_to(await start(), kind) as remote:
        job_id = await one(remote)
        waiting = asyncio.create_task(remote.settled(job_id))
        with pytest.raises(InvalidArgumentError) as caught:
            await remote.submit([Template("brew")], [JobDraft(payload=b"x" * 1_000_000)] * 6)
        assert caught.value.reason == "REQUEST_TOO_LARGE"
        await remote.cancel(job_id, "")
        assert (await waiting)[0].id == job_id


@EVERY_CONVERSATION
async def test_call_that_is_given_up_leaves_nothing_behind(start: Start, kind: str) -> None:
    """A canceled wait and one past its deadline end at the server too."""
    server = await start()
    calls = await calls_to(server, kind)
    remote = calls.remote
    job_id = await one(remote)
    waits = server.jobs._waiters._ends
    waiting = asyncio.create_task(remote.settled(job_id))
    async with asyncio.timeout(30):
        while not waits:
            await one(remote)
    waiting.cancel()
    with pytest.raises(DeadlineExceededError):
        await calls.settled(job_id, 0.01)
    async with asyncio.timeout(30):
        while waits:
            await one(remote)
    await remote.close()


@EVERY_CARRIER
async def test_stream_that_is_left_ends_at_the_server(start: Start, kind: str) -> None:
    """The server forgets a feed reader that stops reading."""
    server = await start()
    async with remote_to(server, kind) as remote:
        stream = remote.feed(None)
        await anext(aiter(stream))
        assert len(server.feed._readers) == 1
        await stream.aclose()
        async with asyncio.timeout(30):
            while server.feed._readers:
                await one(remote)


@EVERY_CARRIER
async def test_stopping_server_fails_waits_and_streams_with_unavailable(start: Start, kind: str) -> None:
    """A server that stops fails waits and streams with UNAVAILABLE instead of waiting for them."""
    server = await start()
    calls = await calls_to(server, kind)
    remote = calls.remote
    job_id = await one(remote)
    waiting = asyncio.create_task(calls.settled(job_id, None))
    watch, feed = aiter(remote.watch(job_id)), aiter(remote.feed(None))
    await anext(watch)
    await anext(feed)
    async with asyncio.timeout(30):
        while not server.jobs._waiters._ends:
            await remote.get(job_id)
        await server.stop()
        for pending in (waiting, end_of(watch), end_of(feed)):
            with pytest.raises(UnavailableError):
                await pending
    await remote.close()


@pytest.mark.parametrize("kind", ["socket", "tcp"])
async def test_lost_connection_fails_calls_under_way_and_later_ones(start: Start, kind: str) -> None:
    """When the connection drops, a waiting call gets CONNECTION_LOST and a later one UNREACHABLE."""
    server = await start()
    carrier = await WireTransport.connect(endpoint_of(server, kind))
    calls = WireCalls(carrier)
    job_id = await one(calls.remote)
    waiting = asyncio.create_task(calls.settled(job_id, None))
    await one(calls.remote)
    for service in (server._socket._service, server.public_server._wire):
        for connection in list(service._connections):
            connection.drop()
    with pytest.raises(UnavailableError) as lost:
        await waiting
    with pytest.raises(UnavailableError) as later:
        await calls.settled(job_id, None)
    assert (lost.value.reason, later.value.reason) == ("CONNECTION_LOST", "UNREACHABLE")
    assert not carrier.is_connected


@pytest.mark.parametrize("kind", REACHED)
async def test_conversation_is_opened_anew_after_a_restart(start: Start, kind: str) -> None:
    """A client's next call after a restart of the server reaches the new server."""
    port, http_port = stable_port(), stable_port()
    server = await start(port=port, http_port=http_port)
    remote = lasting_remote(server, kind)
    job_id = await one(remote)
    await server.stop()
    await start(port=port, http_port=http_port)
    assert (await remote.get(job_id)).state == State.QUEUED
    await remote.close()


async def test_client_with_the_address_of_grpc_finds_the_wire(start: Start) -> None:
    """The gRPC port of a server names its port of the wire, and calls, streams and workers connect there."""
    server = await start()
    async with RemoteJobs(await WireTransport.connect(TcpEndpoint(server.address))) as remote:
        assert (await remote.stats()).epoch == 1
    async with RemoteJobs(tcp_transport(server.address)) as remote:
        feed = remote.feed(0)
        assert (await anext(feed)).position == 0
        await server.jobs.submit([Template("brew")], [JobDraft()])
        while not (await anext(feed)).entries:
            pass
        await feed.aclose()
    session = await WireWork(TcpEndpoint(server.address)).open(Introduction("w", frozenset({"brew"})))
    assert (await session.next()).lease_ms == server._settings.lease_ms
    await session.close()
    blocking = await asyncio.to_thread(BlockingTransport.connect, TcpEndpoint(server.address))
    assert (await asyncio.to_thread(blocking.call, STATS, NOTHING, None)).epoch == 1
    blocking.drop()


async def test_wire_is_on_the_port_of_http(start: Start) -> None:
    """A server with HTTP serves the wire on the same port."""
    server = await start(no_http=False, http_port=0)
    async with RemoteJobs(tcp_transport(server.http_address)) as remote:
        assert (await remote.stats()).epoch == 1
    assert "wire" not in server.addresses


async def test_capability_that_a_backend_lacks_is_named(start: Start) -> None:
    """A call for a capability that the backend lacks is UNIMPLEMENTED and names the backend."""
    server = await start()
    backend = Backend(server.jobs, server.work, declared=Capabilities("poor", frozenset()))
    poor = SocketServer(backend, LeaseTerms(0, 0))
    path = socket_of(server).with_name("poor.sock")
    await poor.start(path)
    async with RemoteJobs(await WireTransport.connect(UnixEndpoint(path))) as remote:
        with pytest.raises(UnimplementedError, match="the poor backend has no administration"):
            await remote.stats()
        with pytest.raises(UnimplementedError, match="the poor backend has no feed"):
            await anext(aiter(remote.feed(None)))
        with pytest.raises(UnimplementedError, match="the poor backend has no history"):
            await remote.history("x")
    await poor.stop()
