"""The feed over HTTP: every event, in order, without a gap."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from holdfast.core.model import Template
from holdfast.errors import UnauthenticatedError
from holdfast.ports import JobDraft
from holdfast.server.auth.permissions import Caller, CallerSession, Ended, OpenGuard, Right, Scope
from holdfast.server.http import event_stream
from holdfast.server.http.application import Application
from holdfast.server.http.events import Told
from holdfast.server.http.server import HttpServer
from holdfast.server.ledger_server import LedgerServer
from tests.integration.conftest import Start
from tests.integration.http_client import Line, ask, connected, get, request

EVENTS = "/api/v1/events"


class Feed:
    """A feed, parsed as a browser does."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._text = ""
        self.last_id = ""
        self.heard: list[tuple[str, Any]] = []
        self.comments: list[str] = []

    async def more(self) -> bool:
        """Reads one part; False at the end."""
        part = await self._line.chunk()
        self._text += part.decode()
        *messages, self._text = self._text.split("\n\n")
        for message in messages:
            self._take(message)
        return bool(part)

    def _take(self, message: str) -> None:
        fields: dict[str, str] = {}
        for line in message.split("\n"):
            name, _, value = line.partition(": ")
            if not name:
                self.comments.append(value)
            else:
                assert name in {"id", "event", "data", "retry"}, line
                fields[name] = value
        self.last_id = fields.get("id", self.last_id)
        if "data" in fields:
            told = msgspec.convert(fields, Told)
            self.heard.append((told.event, json.loads(told.data)))

    @property
    def entries(self) -> list[dict[str, Any]]:
        return [entry for kind, data in self.heard if kind == "entries" for entry in data]

    async def until(self, count: int) -> list[dict[str, Any]]:
        """Waits for `count` entries and returns all of them."""
        while len(self.entries) < count:
            assert await self.more()
        return self.entries


@asynccontextmanager
async def listening(server: LedgerServer, query: str = "", **headers: str) -> AsyncIterator[Feed]:
    """A feed that has started."""
    async with connected(server.http_address) as line:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        line.writer.write(request("GET", f"{EVENTS}?{query}", None, named))
        reply = await line.reply()
        assert reply.status == 200
        assert reply.headers["content-type"].startswith("text/event-stream")
        feed = Feed(line)
        await feed.more()
        yield feed


@pytest.fixture
async def server(start: Start) -> LedgerServer:
    """A server without a worker."""
    return await start(no_http=False, http_port=0)


async def submit(server: LedgerServer, count: int = 1) -> list[str]:
    """Submits jobs as one event."""
    return (await server.jobs.submit([Template("echo")], [JobDraft()] * count)).job_ids


async def test_feed_without_a_position_sends_only_new_events(server: LedgerServer) -> None:
    """A feed without a position sends only new events, each once."""
    await submit(server)
    async with listening(server) as feed:
        assert feed.last_id == str(server.coordinator.ledger.position)
        ids = await submit(server, 3)
        await server.jobs.cancel(ids[0], "why not")
        entries = await feed.until(4)
    assert [entry["job_id"] for entry in entries] == [*ids, ids[0]]
    assert [entry["what"] for entry in entries] == ["submitted"] * 3 + ["canceled"]
    assert feed.last_id == str(entries[-1]["position"])


async def test_listener_that_comes_back_misses_nothing(server: LedgerServer) -> None:
    """A feed with a position, in the header or the query, sends all later events and then new ones without a gap."""
    made = [(await submit(server))[0] for _ in range(20)]
    for query, headers in (("after=0", {}), ("", {"Last_Event_ID": "0"}), ("after=19", {"Last_Event_ID": "0"})):
        async with listening(server, query, **headers) as feed:
            more = [(await submit(server))[0] for _ in range(5)]
            entries = await feed.until(len(made) + 5)
        assert [entry["job_id"] for entry in entries] == made + more
        made += more
    async with listening(server, Last_Event_ID=feed.last_id) as later:
        last = await submit(server)
        assert [entry["job_id"] for entry in await later.until(1)] == last


async def test_readers_that_reconnect_receive_every_job_once(server: LedgerServer) -> None:
    """Readers that disconnect and return while jobs are submitted each receive every job once and in order."""
    made: list[str] = []

    async def make() -> None:
        for _ in range(60):
            made.extend(await submit(server, 3))
            await asyncio.sleep(0)

    async def listen() -> list[str]:
        heard: list[str] = []
        position = "0"
        while len(heard) < 180:
            async with listening(server, Last_Event_ID=position) as feed:
                await feed.until(1)
                heard += [entry["job_id"] for entry in feed.entries]
                position = feed.last_id
        return heard

    heard, *others = (await asyncio.gather(*(listen() for _ in range(5)), make()))[:-1]
    assert heard == made
    assert all(other == made for other in others)


async def test_feed_filters_by_job_event_status_and_worker(server: LedgerServer) -> None:
    """A feed can be filtered by job, event, status or worker."""
    first, second = await submit(server, 2)
    await server.jobs.cancel(second, "")
    await submit(server)
    for query, wanted in (
        (f"job={first}", [(first, "submitted")]),
        (f"job={second}&job={first}", [(first, "submitted"), (second, "submitted"), (second, "canceled")]),
        (f"job={second}&what=canceled", [(second, "canceled")]),
        ("status=cancelled", [(second, "canceled")]),
        ("what=canceled", [(second, "canceled")]),
    ):
        async with listening(server, f"after=0&{query}") as feed:
            entries = await feed.until(len(wanted))
        assert sorted((entry["job_id"], entry["what"]) for entry in entries) == sorted(wanted)
    async with listening(server, "worker=nobody") as feed:
        await submit(server)
        async with listening(server, "after=0") as other:
            await other.until(4)
        assert feed.entries == []


async def test_silence_is_broken_by_comments(server: LedgerServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle feed sends comments with its current position."""
    monkeypatch.setattr(event_stream, "_BEAT_S", 0.05)
    async with listening(server, "worker=nobody") as feed:
        await submit(server)
        position = server.coordinator.ledger.position
        while feed.last_id != str(position):
            await feed.more()
        assert "alive" in feed.comments


async def test_numbers_come_every_second(server: LedgerServer) -> None:
    """A feed of the kind `stats` sends the numbers every second."""
    async with listening(server, "kind=stats") as feed:
        await submit(server, 7)
        while not feed.heard or feed.heard[-1][1]["states"]["QUEUED"] != 7:
            await feed.more()
        assert {kind for kind, _ in feed.heard} == {"stats"}
        assert feed.heard[-1][1]["totals"]["submitted"] == 7


async def test_document_describes_each_event(server: LedgerServer) -> None:
    """The OpenAPI document describes the fields of an event, not the text of the stream."""
    document = (await get(server.http_address, "/openapi.json")).json
    (content,) = document["paths"][EVENTS]["get"]["responses"]["200"]["content"].values()
    schema = document["components"]["schemas"][content["schema"]["$ref"].rpartition("/")[2]]
    assert (schema["type"], set(schema["properties"])) == ("object", {"event", "data", "id"})
    assert set(schema["required"]) == {"event", "data"}  # events of the kind `stats` have no position


async def test_position_that_is_not_there_is_404(server: LedgerServer) -> None:
    """A feed from a future or malformed position is 404."""
    reply = await get(server.http_address, f"{EVENTS}?after=1000")
    assert (reply.status, reply.reason) == (404, "POSITION_UNKNOWN")
    reply = await get(server.http_address, f"{EVENTS}?after=-1")
    assert (reply.status, reply.reason) == (400, "POSITION_INVALID")


async def test_head_of_a_feed_ends(server: LedgerServer) -> None:
    """A HEAD request for the feed returns its headers and opens no stream."""
    reply = await ask(server.http_address, "HEAD", EVENTS)
    assert (reply.status, reply.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")


async def test_stop_ends_every_feed(server: LedgerServer) -> None:
    """A server that stops ends every feed, so that clients reconnect."""
    async with listening(server) as one, listening(server, "after=0") as two:
        await server.stop()
        for feed in (one, two):
            while await feed.more():
                pass


class Staying:
    """A caller with an open visit."""

    def __init__(self, guard: "Visitors") -> None:
        self._guard = guard
        self.caller = guard.admit("", "", Scope.READ)

    def admit(self, scope: Scope) -> Caller:
        return self._guard.admit("", "", scope)

    def leave(self) -> None:
        self._guard.left += 1


class Visitors(OpenGuard):
    """A guard that admits every caller and can end all open visits."""

    def __init__(self) -> None:
        self.staying: list[Ended] = []
        self.left = 0

    def enter(self, token: str, peer: str, right: Right, ended: Ended) -> CallerSession:
        self.staying.append(ended)
        return Staying(self)

    def send_away(self) -> None:
        for ended in self.staying:
            ended(UnauthenticatedError("revoked"))


async def test_right_that_is_lost_ends_the_feed(server: LedgerServer) -> None:
    """A feed ends when its token is revoked, and a visit is removed when its client leaves."""
    guard = Visitors()
    http = HttpServer(Application(server.backend, guard))
    address = await http.start("127.0.0.1", 0)
    try:
        async with connected(address) as line:
            line.writer.write(request("GET", f"{EVENTS}?after=0"))
            await line.reply()
            feed = Feed(line)
            await feed.more()
            guard.send_away()
            while await feed.more():
                pass
        assert (await get(address, f"{EVENTS}?after=1000")).status == 404
        assert guard.left == len(guard.staying) == 2
    finally:
        await http.stop(1)


async def test_server_reads_its_feed_only_while_a_reader_is_connected(server: LedgerServer) -> None:
    """The server stops reading its feed when the last HTTP reader leaves, and starts again for the next one."""
    for _ in range(3):
        async with listening(server) as feed:
            ids = await submit(server)
            assert [entry["job_id"] for entry in await feed.until(1)] == ids
        async with asyncio.timeout(30):
            while server.feed._readers:  # noqa: ASYNC110 - readers have no event for their end
                await asyncio.sleep(0.01)
