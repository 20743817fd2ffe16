"""HTTP between roles, over real sockets."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from holdfast.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError, UnavailableError
from holdfast.server.http.request import AdmittedRequest, HttpResponse, answer
from holdfast.topologies.pipeline.backend import http_client
from holdfast.topologies.pipeline.backend.http_client import LATE, NotDeliveredError, RoleConnections
from holdfast.topologies.pipeline.roles.role_health import RoleHealth, post
from holdfast.topologies.pipeline.roles.role_server import MSGPACK_TYPE, RoleServer
from tests.integration.http_client import ask
from tests.integration.pipeline.long_timeouts import PATIENCE_S, PatientLines


class Word(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The request of the role in these tests."""

    text: str = ""


class Parrot:
    """A role that returns its request."""

    def __init__(self) -> None:
        self.asleep = asyncio.Event()
        self.is_ready = True

    async def say(self, asked: AdmittedRequest) -> HttpResponse:
        return answer({"said": asked.content.text})

    async def carry(self, asked: AdmittedRequest) -> HttpResponse:
        return HttpResponse(200, msgspec.msgpack.encode(msgspec.msgpack.decode(asked.content, type=Word)), MSGPACK_TYPE)

    async def refuse(self, asked: AdmittedRequest) -> HttpResponse:
        raise FailedPreconditionError("not here", reason="NOT_LEADING", details={"leader": "other"})

    async def sleep(self, asked: AdmittedRequest) -> HttpResponse:
        self.asleep.set()
        await asyncio.Event().wait()
        return answer(None)

    async def break_down(self, asked: AdmittedRequest) -> HttpResponse:
        raise RuntimeError("a secret")

    def server(self) -> RoleServer:
        routes = [
            post("/say", self.say, Word, "says it"),
            post("/carry", self.carry, bytes, "says it in MessagePack"),
            post("/refuse", self.refuse, Word, "does not"),
            post("/sleep", self.sleep, Word, "never answers"),
            post("/break", self.break_down, Word, "breaks"),
        ]
        vitals = RoleHealth("parrot", is_ready=lambda: self.is_ready, health=lambda: {"words": 3})
        return RoleServer(routes, vitals)


@asynccontextmanager
async def served(lines: RoleConnections | None = None) -> AsyncIterator[tuple[Parrot, str, RoleConnections]]:
    """A role, its address, and connections to it."""
    parrot, lines = Parrot(), lines or PatientLines()
    server = parrot.server()
    address = await server.start("127.0.0.1", 0)
    try:
        yield parrot, address, lines
    finally:
        await lines.close()
        await server.stop(0)


async def test_values_travel_both_ways() -> None:
    """Routes receive JSON and MessagePack as their declared types, and an empty body as the defaults."""
    async with served() as (_, address, lines):
        assert await lines.ask(address, "/say", Word("hello"), kind=dict[str, str]) == {"said": "hello"}
        raw = await lines.carry(address, "/say", msgspec.msgpack.encode(Word("packed")))
        assert msgspec.json.decode(raw) == {"said": "packed"}
        raw = await lines.carry(address, "/carry", msgspec.msgpack.encode(Word("raw")))
        assert msgspec.msgpack.decode(raw, type=Word) == Word("raw")
        assert (await ask(address, "POST", "/say")).json == {"said": ""}


async def test_refusals_arrive_as_they_were_raised() -> None:
    """An error of the other role is raised with its code, reason, message and details."""
    async with served() as (_, address, lines):
        with pytest.raises(FailedPreconditionError) as refused:
            await lines.ask(address, "/refuse", Word())
        assert refused.value.reason == "NOT_LEADING"
        assert refused.value.details == {"leader": "other"}
        with pytest.raises(InvalidArgumentError):
            await lines.ask(address, "/say", {"txt": "wrong name"})
        with pytest.raises(InvalidArgumentError):
            await lines.carry(address, "/say", b"\xc1")
        with pytest.raises(NotFoundError, match="/say"):
            await lines.ask(address, "/nowhere")


async def test_response_to_a_bug_hides_the_exception() -> None:
    """The response to a request that hits a bug is 500 without the text of the exception."""
    async with served() as (_, address, _lines):
        reply = await ask(address, "POST", "/break", {})
        assert reply.status == 500
        assert b"secret" not in reply.body


async def test_not_delivered_is_told_from_not_answered() -> None:
    """A call that no server received raises NotDeliveredError, and one past its deadline UnavailableError."""
    async with served(RoleConnections()) as (parrot, address, lines):
        await lines.ask(address, "/say", Word(), deadline_s=PATIENCE_S)  # opens a connection
        while not parrot.asleep.is_set():  # the deadline may pass before the request is sent
            with pytest.raises(UnavailableError) as silent:
                await lines.ask(address, "/sleep", Word(), deadline_s=0.5)
        assert silent.value.reason == "NO_ANSWER"
        assert not isinstance(silent.value, NotDeliveredError)
    lines = RoleConnections()
    with pytest.raises(NotDeliveredError):
        await lines.ask(address, "/say", Word())
    await lines.close()


async def test_connection_that_is_not_made_in_time_is_told_from_one_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that is not accepted in time raises NotDeliveredError with the reason LATE."""
    monkeypatch.setattr(http_client, "_CONNECT_S", 0.5)
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        host, port = listener.getsockname()
        for filler in (first, second):
            filler.setblocking(False)
            filler.connect_ex((host, port))
        lines = RoleConnections()
        with pytest.raises(NotDeliveredError) as late:
            await lines.ask(f"{host}:{port}", "/say", Word(), deadline_s=60)
        assert late.value.reason == LATE
        await lines.close()


async def test_a_connection_that_breaks_under_a_call_is_unavailable() -> None:
    """A call whose connection breaks raises UnavailableError, because the server may have received it."""

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    lines = RoleConnections()
    with pytest.raises(UnavailableError) as broken:
        await lines.ask(address, "/say", Word())
    assert not isinstance(broken.value, NotDeliveredError)
    await lines.close()
    server.close()


async def test_every_role_answers_probes() -> None:
    """Every role serves health, liveness, readiness and metrics."""
    async with served() as (parrot, address, _):
        assert (await ask(address, "GET", "/health")).json == {"status": "ok", "role": "parrot", "words": 3}
        parrot.is_ready = False
        told: dict[str, Any] = {
            path: (await ask(address, "GET", path)).status for path in ("/health", "/livez", "/readyz", "/metrics")
        }
        assert told == {"/health": 503, "/livez": 200, "/readyz": 503, "/metrics": 200}


async def test_pages_of_others_change_nothing() -> None:
    """A request with a foreign origin or an unknown host is refused."""
    async with served() as (_, address, _):
        foreign = await ask(address, "POST", "/say", {}, {"Origin": "http://evil.example"})
        assert foreign.status == 403
        assert (await ask(address, "GET", "/metrics", None, {"Host": "evil.example"})).status in {400, 403}


async def test_taken_port_is_explained() -> None:
    """The error for a port in use names the option that changes the port."""
    async with served() as (parrot, address, _):
        with pytest.raises(UnavailableError, match="--port"):
            await parrot.server().start("127.0.0.1", int(address.rpartition(":")[2]))
