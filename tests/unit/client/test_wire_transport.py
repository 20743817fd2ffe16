"""Calls over the wire with a server that misbehaves: it stalls, breaks off, or sends something else."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from holdfast import limits
from holdfast.client import wire_transport
from holdfast.client.remote import RemoteJobs
from holdfast.client.retry_policy import NoRetryPolicy
from holdfast.client.wire_transport import ReconnectingTransport, WireTransport
from holdfast.core.commands import Submitted
from holdfast.core.model import Template
from holdfast.errors import (
    DeadlineExceededError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    UnauthenticatedError,
    UnavailableError,
)
from holdfast.ports import JobDraft, ResultView
from holdfast.wire import methods
from holdfast.wire.frames import framed
from holdfast.wire.messages import ERROR, LAST, MORE, VERSION, Opened, WireFailure
from holdfast.wire.methods import PAYLOAD, RESULT, OneJob, Submission
from tests.unit.client.wire_server import Peer, scripted

#: The beginning of a server's answer over HTTP/2, which gRPC uses.
HTTP_2 = b"\x00\x00\x12\x04\x00\x00\x00\x00\x00"
LARGE = Submission([Template("brew")], [JobDraft(payload=b"x" * limits.PAYLOAD_BYTES_MAX)] * 3)


async def flooded(carrier: WireTransport) -> list[asyncio.Task[Submitted]]:
    """Starts calls until the server no longer reads them."""
    calls: list[asyncio.Task[Submitted]] = []
    assert carrier._line is not None
    while carrier._line.is_writable:
        calls.append(asyncio.create_task(carrier.call(methods.SUBMIT, LARGE, None)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    return calls


async def test_deadline_passes_although_the_server_does_not_read(tmp_path: Path) -> None:
    """A call to a server that reads nothing fails at its deadline, although it could not be sent."""

    async def stall(peer: Peer) -> None:
        await peer.open()
        await asyncio.Event().wait()

    async with scripted(tmp_path, stall) as endpoint:
        carrier = await WireTransport.connect(endpoint)
        calls = await flooded(carrier)
        with pytest.raises(DeadlineExceededError):
            await carrier.call(PAYLOAD, OneJob("x"), 0.01)
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)
        carrier._line.drop()  # type: ignore[union-attr]  # it is connected


async def test_call_that_could_not_be_sent_fails_with_the_connection(tmp_path: Path) -> None:
    """A call that waits for a server that reads nothing fails when the connection is lost."""
    cut = asyncio.Event()

    async def stall(peer: Peer) -> None:
        await peer.open()
        await cut.wait()

    async with scripted(tmp_path, stall) as endpoint:
        carrier = await WireTransport.connect(endpoint)
        calls = await flooded(carrier)
        waiting = asyncio.create_task(carrier.call(PAYLOAD, OneJob("x"), None))
        await asyncio.sleep(0)
        cut.set()
        for call in (*calls, waiting):
            with pytest.raises(UnavailableError):
                await call


async def test_close_does_not_wait_for_a_server_that_does_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing a connection whose server reads nothing drops it, and its calls fail."""
    monkeypatch.setattr(wire_transport, "_CLOSE_S", 0.01)

    async def stall(peer: Peer) -> None:
        await peer.open()
        await asyncio.Event().wait()

    async with scripted(tmp_path, stall) as endpoint:
        carrier = await WireTransport.connect(endpoint)
        calls = await flooded(carrier)
        await carrier.close()
        for call in calls:
            with pytest.raises(UnavailableError):
                await call


@pytest.mark.parametrize(
    "reply", [b"\xff", b"\xc1\xc1", b"\x93\xa2\xff\xfe\x00\x00", b"\x93\x01\x00" + b"\x91" * 100_000]
)
async def test_reply_that_cannot_be_read_ends_the_connection(tmp_path: Path, reply: bytes) -> None:
    """A client that gets something else than a reply drops the connection, and its calls get CONNECTION_LOST."""

    async def babble(peer: Peer) -> None:
        await peer.open()
        await peer.call()
        peer.writer.write(len(reply).to_bytes(4, "big") + reply)
        await peer.reader.read()

    async with scripted(tmp_path, babble) as endpoint:
        carrier = await WireTransport.connect(endpoint)
        with pytest.raises(UnavailableError, match="cannot be decoded") as caught:
            await carrier.call(PAYLOAD, OneJob("x"), None)
        assert caught.value.reason == "CONNECTION_LOST"
        with pytest.raises(UnavailableError, match="cannot be decoded"):
            await anext(carrier.stream(methods.WATCH, OneJob("x")))


@pytest.mark.parametrize("body", [b"tea", {"state": 99}, {}, msgspec.Raw(b"\x81\xa2\xff\xfe\x00")])
async def test_response_of_another_type_is_an_error_of_its_call_only(tmp_path: Path, body: object) -> None:
    """A response that is not what the method returns is INTERNAL, and other calls of the connection continue."""

    async def serve(peer: Peer) -> None:
        await peer.open()
        peer.send(((await peer.call()).id, LAST, body))
        peer.send(((await peer.call()).id, LAST, b"tea"))
        await peer.reader.read()

    async with scripted(tmp_path, serve) as endpoint:
        carrier = await WireTransport.connect(endpoint)
        with pytest.raises(InternalError, match=r"the response to jobs\.result cannot be decoded") as caught:
            await carrier.call(RESULT, OneJob("x"), None)
        assert caught.value.reason == "RESPONSE_MALFORMED"
        assert await carrier.call(PAYLOAD, OneJob("x"), None) == b"tea"
        await carrier.close()


async def test_replies_may_come_in_any_order_and_for_calls_that_were_given_up(tmp_path: Path) -> None:
    """Each reply reaches its call, whatever the order, and a reply to a call that was given up is ignored."""

    async def serve(peer: Peer) -> None:
        await peer.open()
        ids = [(await peer.call()).id for _ in range(3)]
        canceled = await peer.call()
        assert (canceled.id, canceled.method) == (ids[0], "")
        peer.send(*((number, LAST, str(number).encode()) for number in reversed(ids)), (99, LAST, b""))
        await peer.reader.read()

    async with scripted(tmp_path, serve) as endpoint:
        carrier = await WireTransport.connect(endpoint)
        calls = [asyncio.create_task(carrier.call(PAYLOAD, OneJob("x"), None)) for _ in range(3)]
        await asyncio.sleep(0)
        calls[0].cancel()
        assert await asyncio.gather(*calls[1:]) == [b"2", b"3"]
        await carrier.close()


async def test_response_of_a_newer_server_is_understood(tmp_path: Path) -> None:
    """A client ignores elements and fields that it does not know, and takes the default for missing ones."""

    async def serve(peer: Peer) -> None:
        await peer.opening()
        peer.send([VERSION, "", "", "", "9.9", 0, "", "new"])
        peer.send([(await peer.call()).id, LAST, {"state": 3, "flavour": "mint"}, "new"])
        await peer.reader.read()

    async with scripted(tmp_path, serve) as endpoint:
        carrier = await WireTransport.connect(endpoint)
        result = await carrier.call(RESULT, OneJob("x"), None)
        assert result == ResultView(result.state)
        await carrier.close()


async def test_error_of_the_connection_reaches_every_call(tmp_path: Path) -> None:
    """An error with the id 0 ends all calls and streams of the connection with that error."""
    failure = WireFailure("UNAUTHENTICATED", "TOKEN_UNKNOWN", "revoked")

    async def serve(peer: Peer) -> None:
        await peer.open()
        call = await peer.call()
        if call.method == "feed":
            peer.send((call.id, MORE, {"entries": [], "position": 1}))
        else:
            await peer.call()
        peer.send((0, ERROR, failure))
        await peer.writer.drain()

    async with scripted(tmp_path, serve) as endpoint:
        carrier = await WireTransport.connect(endpoint)
        calls = [asyncio.create_task(carrier.call(PAYLOAD, OneJob("x"), None)) for _ in range(2)]
        for call in calls:
            with pytest.raises(UnauthenticatedError, match="revoked"):
                await call
        feed = carrier.stream(methods.FEED, methods.FeedStart(None))
        assert (await anext(feed)).position == 1
        with pytest.raises(UnauthenticatedError, match="revoked"):
            await anext(feed)


async def test_refused_opening_raises_the_error_of_the_server(tmp_path: Path) -> None:
    """A client whose opening is refused gets the server's error, for calls and for streams."""

    async def refuse(peer: Peer) -> None:
        await peer.opening()
        peer.send(Opened(0, "FAILED_PRECONDITION", "WHY", "because"))
        await peer.writer.drain()

    async with scripted(tmp_path, refuse) as endpoint:
        with pytest.raises(FailedPreconditionError, match="because"):
            await WireTransport.connect(endpoint)
        remote = RemoteJobs(ReconnectingTransport(endpoint), NoRetryPolicy())
        with pytest.raises(FailedPreconditionError, match="because"):
            await remote.stats()
        with pytest.raises(FailedPreconditionError, match="because"):
            await anext(remote.feed(None))


@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", framed(b"\xff\xff"), HTTP_2])
async def test_server_that_speaks_something_else_is_named(tmp_path: Path, said: bytes) -> None:
    """A client of a server that does not speak the wire gets an error that says so."""

    async def speak(peer: Peer) -> None:
        await peer.opening()
        peer.writer.write(said)
        await peer.writer.drain()
        peer.writer.close()
        await peer.writer.wait_closed()

    async with scripted(tmp_path, speak) as endpoint:
        with pytest.raises(UnavailableError, match="does not speak Holdfast's wire protocol") as caught:
            await WireTransport.connect(endpoint)
        assert caught.value.reason == "NOT_WIRE"


async def test_server_that_says_nothing_is_unreachable(tmp_path: Path) -> None:
    """A client whose server accepts the connection but sends nothing gets UNREACHABLE after the time to connect."""

    async def stay_silent(peer: Peer) -> None:
        await peer.reader.read()

    async with scripted(tmp_path, stay_silent) as endpoint:
        with pytest.raises(UnavailableError, match="did not answer in time") as caught:
            await WireTransport.connect(endpoint, 0.01)
        assert caught.value.reason == "UNREACHABLE"


async def test_calls_share_the_result_of_an_attempt_to_connect(tmp_path: Path) -> None:
    """Many calls to a server that does not answer fail after one attempt, not one after another."""
    attempts = 0

    async def stall(peer: Peer) -> None:
        nonlocal attempts
        await peer.opening()
        attempts += 1
        await asyncio.Event().wait()

    async with scripted(tmp_path, stall) as endpoint:
        transport = ReconnectingTransport(endpoint)
        calls = [transport.call(RESULT, OneJob("x"), 0.2) for _ in range(5)]
        errors = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(error) for error in errors} == {UnavailableError}
        assert attempts == 1
        with pytest.raises(UnavailableError):
            await transport.call(RESULT, OneJob("x"), 0.2)
        assert attempts == 2


async def test_stream_without_an_end_is_a_lost_connection(tmp_path: Path) -> None:
    """A stream whose connection ends before its last reply raises CONNECTION_LOST after the items that arrived."""

    async def serve(peer: Peer) -> None:
        await peer.open()
        call = await peer.call()
        peer.send((call.id, MORE, {"entries": [], "position": 1}))
        await peer.writer.drain()
        peer.writer.close()
        await peer.writer.wait_closed()

    async with scripted(tmp_path, serve) as endpoint:
        feed = ReconnectingTransport(endpoint).stream(methods.FEED, methods.FeedStart(None))
        assert (await anext(feed)).position == 1
        with pytest.raises(UnavailableError) as caught:
            await anext(feed)
        assert caught.value.reason == "CONNECTION_LOST"


async def test_stream_of_a_slow_reader_is_bounded(tmp_path: Path) -> None:
    """A client that reads a stream slowly stops reading from its connection, and still gets every item."""
    count = 5_000
    sent = 0

    async def serve(peer: Peer) -> None:
        nonlocal sent
        await peer.open()
        call = await peer.call()
        for sent in range(count):
            peer.send((call.id, MORE, {"entries": [], "position": sent}))
            await peer.writer.drain()
        peer.send((call.id, LAST, None))
        await peer.reader.read()

    async with scripted(tmp_path, serve) as endpoint:
        carrier = ReconnectingTransport(endpoint)
        feed = carrier.stream(methods.FEED, methods.FeedStart(None))
        positions = [(await anext(feed)).position]
        positions += [part.position async for part in feed]
        assert positions == list(range(count))


async def test_request_that_cannot_be_encoded_leaves_the_connection_alone(tmp_path: Path) -> None:
    """A request that the wire cannot carry is INVALID_ARGUMENT, and nothing of it is sent."""

    async def serve(peer: Peer) -> None:
        await peer.open()
        peer.send(((await peer.call()).id, LAST, b"tea"))
        await peer.reader.read()

    async with scripted(tmp_path, serve) as endpoint:
        carrier = await WireTransport.connect(endpoint)
        for bad in (OneJob("\ud800"), OneJob(object()), OneJob(1 << 70)):  # type: ignore[arg-type]
            with pytest.raises(InvalidArgumentError) as caught:
                await carrier.call(PAYLOAD, bad, None)
            assert caught.value.reason == "REQUEST_INVALID"
        assert await carrier.call(PAYLOAD, OneJob("x"), None) == b"tea"
        await carrier.close()
