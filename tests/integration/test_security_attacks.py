"""Attacks on a server: smuggled and repeated headers, malformed tokens, pages of other sites, floods."""

import asyncio
from contextlib import AsyncExitStack
from itertools import product
from pathlib import Path
from typing import Any

import grpc
import pytest
from structlog.testing import capture_logs

from holdfast.client.access import Access
from holdfast.client.retry_policy import NoRetryPolicy, RetryPolicy
from holdfast.core.model import Template
from holdfast.errors import InvalidArgumentError, ResourceExhaustedError, UnauthenticatedError
from holdfast.ports import Introduction, JobDraft, WorkSession
from holdfast.proto import taskqueue_internal_pb2 as internal
from holdfast.proto import taskqueue_internal_pb2_grpc as internal_rpc
from holdfast.proto import taskqueue_public_pb2 as public
from holdfast.proto import taskqueue_public_pb2_grpc as public_rpc
from holdfast.server.auth import tokens
from holdfast.server.auth.permissions import Scope
from holdfast.server.http import protocol
from holdfast.server.ledger_server import LedgerServer
from holdfast.wire.frames import framed
from holdfast.wire.messages import CALLS, MAGIC, VERSION, WORK, Opening, decode_opened, encode
from holdfast.wire.methods import SUBMIT, Submission
from tests.integration.conftest import Start
from tests.integration.http_client import Reply, ask, connected, request
from tests.integration.transports import (
    NETWORKS,
    Hearing,
    Remote,
    lasting_remote,
    remote_to,
    work_of,
)

UNKNOWN_METHOD = "/holdfast.v1.JobService/GetJob"


class Secured:
    """A server with one token."""

    def __init__(self, server: LedgerServer, path: Path, token: str) -> None:
        self.server = server
        self.path = path
        self.token = token

    @property
    def http(self) -> str:
        return self.server.http_address

    def client(self, kind: str, token: str = "") -> Remote:
        return lasting_remote(self.server, kind, Access(token=token or self.token), Hearing())

    def look(self) -> None:
        """Reloads the tokens now instead of within a second."""
        self.server.public_server.protection.guard.look()


@pytest.fixture
async def secured(start: Start, tmp_path: Path) -> Secured:
    path = tmp_path / "data" / tokens.FILE_NAME
    token = tokens.create(path, "all", [Scope.ADMIN], now_ms=1)
    return Secured(await start(no_http=False, http_port=0), path, token)


async def raw(address: str, *lines: str, body: str = "") -> Reply:
    """The response to exactly these lines."""
    async with connected(address) as line:
        line.writer.write("".join(f"{text}\r\n" for text in (*lines, "")).encode("latin-1") + body.encode())
        return await line.reply()


STATS = "GET /api/v1/stats HTTP/1.1"
HOST = "Host: 127.0.0.1"


async def test_doubled_and_smuggled_headers_open_nothing(secured: Secured) -> None:
    """The server refuses repeated headers, and accepts no token from a malformed one."""
    good, bad = f"Authorization: Bearer {secured.token}", "Authorization: Bearer x"
    assert (await raw(secured.http, STATS, HOST, good)).status == 200
    for lines in ((good, bad), (bad, good), (good, good)):
        reply = await raw(secured.http, STATS, HOST, *lines)
        assert (reply.status, reply.reason) == (400, "HEADER_TWICE")
    assert (await raw(secured.http, STATS, HOST, "Host: evil.example", good)).status == 400
    for trick in (
        f"X: y\r\n {good}",  # folded
        f"X: y\n\n{good}",
        f"Authorization : Bearer {secured.token}",
        f"Authorization\x00: Bearer {secured.token}",
        f"Authorization: Bearer\x0b{secured.token}",
        f"Authorization: Bearer {secured.token}, Bearer x",
        f"Authorization: Basic {secured.token}",
        f"X-Forwarded-Authorization: Bearer {secured.token}",
        f"Cookie: holdfast={secured.token}x",
        f"Cookie: holdfast={secured.token}; holdfast=x",
    ):
        assert (await raw(secured.http, STATS, HOST, trick)).status in {400, 401}, trick


@pytest.mark.parametrize(
    "lines",
    [
        ("Content-Length: 4", "Transfer-Encoding: chunked"),
        ("Content-Length: 4", "Content-Length: 40"),
        ("Content-Length: +4",),
        ("Transfer-Encoding: xchunked",),
        ("Transfer-Encoding: chunked", "Transfer-Encoding: identity"),
    ],
)
async def test_bodies_of_two_lengths_are_refused(secured: Secured, lines: tuple[str, ...]) -> None:
    """A request with two body lengths is refused, and its body is not read as another request."""
    smuggled = (
        f"0\r\n\r\nGET /api/v1/stats HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {secured.token}\r\n\r\n"
    )
    async with connected(secured.http) as line:
        head = "".join(f"{text}\r\n" for text in ("POST /api/v1/session HTTP/1.1", HOST, *lines))
        line.writer.write(f"{head}\r\n{smuggled}".encode())
        said = await line.end()
    assert b" 200 OK" not in said
    assert not said or said.startswith((b"HTTP/1.1 400", b"HTTP/1.1 415", b"HTTP/1.1 501"))


#: The client of the wire does not send a token that is longer than an opening may be.
TOO_LONG = InvalidArgumentError


async def test_strange_tokens_are_unknown_and_never_logged(secured: Secured) -> None:
    """A huge, foreign or binary token is refused, and neither the error nor the log contains it."""
    strange = ["x" * 20_000, "é" * 20, "\x80\xff", secured.token.upper(), f"{secured.token} x", "secret-in-a-header"]
    with capture_logs() as logs:
        for token in strange:
            reply = await raw(secured.http, STATS, HOST, f"Authorization: Bearer {token}")
            assert (reply.status, reply.reason) == (401, "TOKEN_UNKNOWN")
            assert token[:20] not in reply.body.decode()
        target = f"GET /api/v1/stats?token={secured.token} HTTP/1.1"
        assert (await raw(secured.http, target, HOST)).status == 401
        for kind, shown in product(NETWORKS, ("x" * 7_000, "x" * 3_000, secured.token[:-1], "secret-in-metadata")):
            client = secured.client(kind, shown)
            with pytest.raises(TOO_LONG if (kind, len(shown)) == ("tcp", 7_000) else UnauthenticatedError) as caught:
                await client.stats()
            assert shown[:20] not in caught.value.message
            await client.close()
    written = str(logs)
    assert not [token for token in (*strange, secured.token, "secret-in-metadata") if token[:20] in written]


async def test_doubled_metadata_opens_nothing(secured: Secured) -> None:
    """A gRPC call with two tokens is refused."""
    good, bad = ("authorization", f"Bearer {secured.token}"), ("authorization", "Bearer x")
    async with grpc.aio.insecure_channel(secured.server.address) as channel:
        anything: Any = channel
        for metadata in ((good, bad), (bad, good), (good, good), (("authorization", secured.token),), ()):
            call = anything.unary_unary(UNKNOWN_METHOD)(b"", metadata=metadata)
            assert await call.code() is grpc.StatusCode.UNAUTHENTICATED, metadata


async def test_login_keeps_the_token_where_no_script_can_read_it(secured: Secured) -> None:
    """A login with a valid token returns an HttpOnly cookie, and one with an invalid token returns none."""
    refused = await ask(secured.http, "POST", "/api/v1/session", {"token": "hf_wrong"})
    assert (refused.status, refused.reason) == (401, "TOKEN_UNKNOWN")
    assert "set-cookie" not in refused.headers
    injected = await ask(secured.http, "POST", "/api/v1/session", {"token": "x; Domain=evil.example"})
    assert injected.status == 401
    made = await ask(secured.http, "POST", "/api/v1/session", {"token": secured.token})
    assert made.json == {"name": "all", "scopes": ["admin"]}
    kept = made.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(kept.split("; "))
    cookie = {"Cookie": kept.partition(";")[0]}
    assert (await ask(secured.http, "GET", "/api/v1/session", headers=cookie)).json["name"] == "all"
    assert (await ask(secured.http, "GET", "/api/v1/session")).status == 401
    assert (await ask(secured.http, "GET", "/api/v1/stats", headers=cookie)).status == 200
    body = {"type": "echo"}
    bare = await ask(secured.http, "POST", "/api/v1/jobs", body, cookie)
    assert (bare.status, bare.reason) == (403, "CSRF_HEADER_MISSING")
    own = {**cookie, "X-Holdfast-Request": "1"}
    foreign = await ask(secured.http, "POST", "/api/v1/jobs", body, {**own, "Origin": "https://evil.example"})
    assert (foreign.status, foreign.reason) == (403, "CROSS_SITE")
    assert (await ask(secured.http, "POST", "/api/v1/jobs", body, own)).status == 202
    left = await ask(secured.http, "DELETE", "/api/v1/session", headers=own)
    assert (left.status, "Max-Age=0" in left.headers["set-cookie"]) == (204, True)


async def test_page_of_another_site_changes_nothing_on_an_open_server(start: Start) -> None:
    """A server without tokens refuses changes from pages of other sites."""
    server = await start(no_http=False, http_port=0)
    before = server.coordinator.ledger.state.jobs.copy()
    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Host": "evil.example"}):
        for path in ("/api/v1/queues/default/pause", "/api/v1/jobs"):
            reply = await ask(server.http_address, "POST", path, {"type": "echo"}, headers)
            assert (reply.status, reply.reason) in {(403, "CROSS_SITE"), (403, "HOST_UNKNOWN")}
    rebound = await ask(server.http_address, "GET", "/api/v1/jobs", headers={"Host": "evil.example:8080"})
    assert rebound.reason == "HOST_UNKNOWN"
    assert server.coordinator.ledger.state.jobs == before
    assert not [queue for queue in await server.admin.queues() if queue.mode.name != "OPEN"]


def wire_opening(token: str = "", purpose: str = CALLS) -> bytes:
    return MAGIC + framed(encode(Opening(VERSION, VERSION, purpose, token)))


async def test_nothing_is_read_before_the_token_of_a_connection_is_known(secured: Secured) -> None:
    """A connection of the wire without a valid token is told why, and the calls after its opening have no effect."""
    call = framed(encode((1, SUBMIT.name, Submission([Template("brew")], [JobDraft()]))))
    for purpose, token in product((CALLS, WORK), ("", "hf_wrong")):
        async with connected(secured.http) as line:
            line.writer.write(wire_opening(token, purpose) + call)
            opened = decode_opened((await line.end())[4:])
        assert (opened.version, opened.code) == (0, "UNAUTHENTICATED")
        assert opened.reason == ("TOKEN_UNKNOWN" if token else "TOKEN_MISSING")
    assert secured.server.coordinator.ledger.state.jobs == {}


@pytest.mark.parametrize("begun", [b"\0", wire_opening()[:-1]], ids=["magic", "opening"])
async def test_openings_that_never_end_give_way(
    secured: Secured, monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    """Beside as many unfinished openings as connections are allowed, the oldest is closed and a client is answered."""
    monkeypatch.setattr(secured.server.public_server._http._shared, "connections_max", 2)
    async with AsyncExitStack() as stack:
        silent = []
        for count in (1, 2):
            silent.append(await stack.enter_async_context(connected(secured.http)))
            silent[-1].writer.write(begun)
            while len(secured.server.public_server._wire._fresh) < count:  # noqa: ASYNC110 - within a few turns of the loop
                await asyncio.sleep(0)
        client = secured.client("tcp")
        assert (await client.stats()).epoch == 1
        assert await silent[0].end() == b""
        assert len(secured.server.public_server._wire._fresh) == 1
        await client.close()


async def test_opening_that_takes_too_long_is_given_up(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server closes a connection of the wire whose opening takes too long."""
    monkeypatch.setattr(protocol, "_HEAD_S", 0.0)
    async with connected(secured.http) as line:
        line.writer.write(wire_opening()[:-1])
        assert await line.end() == b""


@pytest.mark.parametrize("kind", NETWORKS)
async def test_revoked_token_ends_conversations_streams_and_sessions(secured: Secured, kind: str) -> None:
    """A revoked token ends the open conversations, streams and sessions of its owner with the reason."""
    token = tokens.create(secured.path, "leaver", [Scope.READ, Scope.WORK], now_ms=1)
    secured.look()
    # Unlike with `Hearing`, this client repeats a call whose stream has ended, and gets the reason.
    client = lasting_remote(secured.server, kind, Access(token=token), RetryPolicy())
    assert (await client.stats()).epoch == 1
    work = work_of(secured.server, kind, Access(token=token))
    session = await work.open(Introduction("w", frozenset({"echo"}), frozenset(), 1))
    assert (await session.next()).lease_ms > 0
    feed = asyncio.ensure_future(_drained(client))
    listening = asyncio.Event()
    events = asyncio.ensure_future(_listened(secured, token, listening))
    await listening.wait()
    assert (await client.stats()).epoch == 1
    tokens.revoke(secured.path, "leaver")
    secured.look()
    with pytest.raises(UnauthenticatedError, match="the token is unknown"):
        await client.stats()
    with pytest.raises(UnauthenticatedError):
        await _worked(session)
    with pytest.raises(UnauthenticatedError):
        await feed
    assert (await events).endswith(b"0\r\n\r\n")
    await session.close()
    await client.close()


async def _worked(session: WorkSession) -> None:
    while True:
        await session.next()


async def _drained(client: Remote) -> None:
    async for _ in client.feed(None):
        pass


async def _listened(secured: Secured, token: str, listening: asyncio.Event) -> bytes:
    """Reads a feed over HTTP until the server ends it."""
    async with connected(secured.http) as line:
        line.writer.write(request("GET", "/api/v1/events", headers={"Authorization": f"Bearer {token}"}))
        assert (await line.reply()).status == 200
        listening.set()
        said = b""
        while not said.endswith(b"0\r\n\r\n"):
            part = await line.reader.read(65_536)
            assert part, said
            said += part
        return said


async def test_socket_of_the_directory_needs_no_token(secured: Secured) -> None:
    """The socket of the directory needs no token."""
    async with remote_to(secured.server, "socket") as client:
        assert (await client.stats()).epoch == 1


async def test_rate_limit_refuses_a_flood_and_accepts_heartbeats_and_reports(start: Start) -> None:
    """Above the rate limit calls are refused over gRPC and HTTP, while heartbeats and reports are accepted."""
    server = await start(no_http=False, http_port=0, rate_limit=5, lease_ms=60_000)
    async with grpc.aio.insecure_channel(server.address) as channel:
        jobs, work = (
            public_rpc.TaskQueuePublicServiceStub(channel),
            internal_rpc.CoordinatorInternalServiceStub(channel),
        )
        spec = public.JobSpec(job_type="sim")
        made: set[grpc.StatusCode] = set()
        while grpc.StatusCode.RESOURCE_EXHAUSTED not in made:  # on a slow machine the budget refills meanwhile
            made.update(await asyncio.gather(*(_submitted(jobs, spec) for _ in range(40))))
        assert made == {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED}
        leased = await work.FetchWork(internal.FetchWorkRequest(worker_id="w"))
        assert leased.assigned
        running = internal.RunningJobs(jobs=[internal.RunningJob(job_id=leased.job_id, token=leased.token)])
        for _ in range(40):
            beat = internal.WorkerHeartbeatRequest(worker_id="w", capacity_hint=1, running=running)
            assert (await work.WorkerHeartbeat(beat)).accepted
            assert await _submitted(jobs, spec) in {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED}
        report = internal.ReportWorkOutcomeRequest(
            worker_id="w", job_id=leased.job_id, token=leased.token, outcome=public.JOB_OUTCOME_SUCCEEDED
        )
        assert (await work.ReportWorkOutcome(report)).accepted
    over: list[Reply] = []
    while not over:
        replies = await asyncio.gather(*(ask(server.http_address, "GET", "/api/v1/stats") for _ in range(20)))
        over = [reply for reply in replies if reply.status == 429]
    assert (over[0].reason, over[0].headers["retry-after"]) == ("OVER_BUDGET", "1")
    assert (await ask(server.http_address, "GET", "/livez")).status == 200


async def _submitted(jobs: Any, spec: public.JobSpec) -> grpc.StatusCode:  # noqa: ANN401 - a stub
    call = jobs.SubmitJob(public.SubmitJobRequest(spec=spec))
    code: grpc.StatusCode = await call.code()
    return code


@pytest.mark.parametrize("kind", NETWORKS)
async def test_calls_of_a_conversation_are_counted_one_by_one(start: Start, kind: str) -> None:
    """Each call of a conversation counts against the rate limit."""
    server = await start(rate_limit=5)
    client = lasting_remote(server, kind, retry_policy=NoRetryPolicy())
    with pytest.raises(ResourceExhaustedError, match="5 requests per second"):
        await asyncio.gather(*(client.stats() for _ in range(100)))
    await client.close()
