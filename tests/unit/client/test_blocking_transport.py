"""Calls on the caller's own thread, with servers that refuse, stall, break off, or speak something else."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast import limits
from holdfast.client import blocking_transport
from holdfast.client.blocking_client import BlockingClient
from holdfast.client.blocking_transport import BlockingTransport
from holdfast.client.endpoints import CONNECT_S, TcpEndpoint, UnixEndpoint
from holdfast.errors import (
    DeadlineExceededError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    UnauthenticatedError,
    UnavailableError,
)
from holdfast.wire.frames import FrameReader, framed
from holdfast.wire.messages import ERROR, LAST, MAGIC, VERSION, Call, Opened, WireFailure, decode_call, encode
from holdfast.wire.methods import PAYLOAD, OneJob


class Peer:
    """The server's end of one connection, on a thread of the test."""

    def __init__(self, line: socket.socket) -> None:
        self.line = line
        self._reader = FrameReader(limits.MESSAGE_BYTES_MAX)
        self._messages: list[bytes] = []

    def open(self) -> None:
        """Accepts the client."""
        self.opening()
        self.send(Opened(VERSION))

    def opening(self) -> None:
        """Reads the opening of the client."""
        assert self.line.recv(len(MAGIC), socket.MSG_WAITALL) == MAGIC
        self._message()

    def call(self) -> Call:
        """Reads the next call."""
        return decode_call(self._message())

    def send(self, *messages: object) -> None:
        """Sends messages in one piece."""
        self.line.sendall(b"".join(framed(encode(message)) for message in messages))

    def _message(self) -> bytes:
        while not self._messages:
            data = self.line.recv(65_536)
            if not data:
                raise ConnectionResetError
            self._messages += self._reader.feed(data)
        return self._messages.pop(0)


#: The beginning of a server's answer over HTTP/2, which gRPC uses.
HTTP_2 = b"\x00\x00\x12\x04\x00\x00\x00\x00\x00"
Script = Callable[[Peer], None]


@contextmanager
def scripted(folder: Path, *scripts: Script) -> Iterator[UnixEndpoint]:
    """Runs one script for each connection, one after the other; each connection ends with its script."""
    path = folder / "s.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def serve() -> None:
            for script in scripts:
                line, _ = listening.accept()
                with line:
                    try:
                        script(Peer(line))
                    except ConnectionError:
                        """The client has disconnected."""

        thread = threading.Thread(target=serve)
        thread.start()
        yield UnixEndpoint(path)
        thread.join()


def call(carrier: BlockingTransport, deadline_s: float | None = None) -> bytes:
    return carrier.call(PAYLOAD, OneJob("x"), deadline_s)


def test_calls_are_answered_one_after_the_other(tmp_path: Path) -> None:
    """A connection serves many calls; a refusal and a request that cannot be encoded leave it open."""

    def serve(peer: Peer) -> None:
        peer.open()
        peer.send((peer.call().id, LAST, b"one"))
        peer.send((peer.call().id, ERROR, WireFailure("NOT_FOUND", "GONE", "no such job")))
        peer.send((peer.call().id, LAST, b"two"))

    with scripted(tmp_path, serve) as endpoint:
        carrier = BlockingTransport.connect(endpoint)
        assert call(carrier) == b"one"
        with pytest.raises(NotFoundError, match="no such job"):
            call(carrier)
        with pytest.raises(InvalidArgumentError):
            carrier.call(PAYLOAD, OneJob("\ud800"), None)
        assert call(carrier) == b"two"
        assert carrier.is_open
        carrier.drop()


def test_response_may_come_byte_by_byte(tmp_path: Path) -> None:
    """The client puts a response together from pieces of any size."""

    def serve(peer: Peer) -> None:
        peer.open()
        for byte in framed(encode((peer.call().id, LAST, b"tea" * 100))):
            peer.line.sendall(bytes([byte]))

    with scripted(tmp_path, serve) as endpoint:
        carrier = BlockingTransport.connect(endpoint)
        assert call(carrier) == b"tea" * 100
        carrier.drop()


def test_call_past_its_deadline_ends_its_connection(tmp_path: Path) -> None:
    """A call without a response in time is DEADLINE_EXCEEDED, and a late response reaches no other call."""
    over = threading.Event()

    def stall(peer: Peer) -> None:
        peer.open()
        peer.call()
        over.wait()

    with scripted(tmp_path, stall) as endpoint:
        carrier = BlockingTransport.connect(endpoint)
        with pytest.raises(DeadlineExceededError):
            call(carrier, 0.01)
        over.set()
        assert not carrier.is_open


@pytest.mark.parametrize("said", [b"", b"\x00\x00", framed(b"\xc1\xc1"), b"\xff\xff\xff\xff"])
def test_connection_that_breaks_is_lost(tmp_path: Path, said: bytes) -> None:
    """A call whose connection ends or sends something else than a reply gets CONNECTION_LOST."""

    def break_off(peer: Peer) -> None:
        peer.open()
        peer.call()
        peer.line.sendall(said)

    with scripted(tmp_path, break_off) as endpoint:
        carrier = BlockingTransport.connect(endpoint)
        with pytest.raises(UnavailableError) as caught:
            call(carrier)
        assert caught.value.reason == "CONNECTION_LOST"
        assert not carrier.is_open


def test_response_of_another_type_is_an_error_of_its_call_only(tmp_path: Path) -> None:
    """A response that is not what the method returns is INTERNAL, and the connection stays open."""

    def serve(peer: Peer) -> None:
        peer.open()
        peer.send((peer.call().id, LAST, 7))
        peer.send((peer.call().id, LAST, b"tea"))

    with scripted(tmp_path, serve) as endpoint:
        carrier = BlockingTransport.connect(endpoint)
        with pytest.raises(InternalError):
            call(carrier)
        assert call(carrier) == b"tea"
        carrier.drop()


@pytest.mark.parametrize("is_with_reply", [False, True], ids=["alone", "with-a-reply"])
def test_error_of_the_connection_reaches_the_next_call(tmp_path: Path, *, is_with_reply: bool) -> None:
    """A call on a connection whose token was revoked meanwhile gets that error."""
    failure = (0, ERROR, WireFailure("UNAUTHENTICATED", "TOKEN_UNKNOWN", "revoked"))

    def serve(peer: Peer) -> None:
        peer.open()
        answer = (peer.call().id, LAST, b"tea")
        peer.send(*((answer, failure) if is_with_reply else (answer,)))
        peer.call()
        if not is_with_reply:
            peer.send(failure)

    with scripted(tmp_path, serve) as endpoint:
        carrier = BlockingTransport.connect(endpoint)
        assert call(carrier) == b"tea"
        with pytest.raises(UnauthenticatedError, match="revoked"):
            call(carrier)
        assert not carrier.is_open


def test_refused_opening_raises_the_error_of_the_server(tmp_path: Path) -> None:
    """A client whose opening is refused gets the server's error."""

    def refuse(peer: Peer) -> None:
        peer.opening()
        peer.send(Opened(0, "FAILED_PRECONDITION", "WHY", "because"))

    with scripted(tmp_path, refuse) as endpoint, pytest.raises(FailedPreconditionError, match="because"):
        BlockingTransport.connect(endpoint)


@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", framed(b"\xff"), framed(b"\xc1"), HTTP_2])
def test_server_that_speaks_something_else_is_named(tmp_path: Path, said: bytes) -> None:
    """A client of a server that does not speak the wire gets an error that says so."""

    def speak(peer: Peer) -> None:
        peer.opening()
        peer.line.sendall(said)

    with (
        scripted(tmp_path, speak) as endpoint,
        pytest.raises(UnavailableError, match="does not speak Holdfast's wire protocol") as caught,
    ):
        BlockingTransport.connect(endpoint)
    assert caught.value.reason == "NOT_WIRE"


def test_server_that_says_nothing_is_unreachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client whose server accepts the connection but sends nothing gets UNREACHABLE after the time to connect."""
    monkeypatch.setattr(blocking_transport, "CONNECT_S", 0.01)
    over = threading.Event()

    def stay_silent(_: Peer) -> None:
        over.wait()

    with scripted(tmp_path, stay_silent) as endpoint:
        with pytest.raises(UnavailableError, match="did not answer in time") as caught:
            BlockingTransport.connect(endpoint)
        over.set()
    assert caught.value.reason == "UNREACHABLE"


def test_wait_for_a_server_that_says_nothing_ends_at_the_deadline_of_the_call(tmp_path: Path) -> None:
    """A short wait for a result stays short, although the server does not answer the opening either."""
    over = threading.Event()

    def stay_silent(_: Peer) -> None:
        over.wait()

    with scripted(tmp_path, stay_silent) as endpoint:
        begun_s = time.monotonic()
        with pytest.raises(UnavailableError, match="did not answer in time"):
            BlockingClient(endpoint).settled("x", 0.05)
        took_s = time.monotonic() - begun_s
        over.set()
    assert took_s < CONNECT_S / 2


@pytest.mark.parametrize("kind", ["socket", "tcp"])
def test_connection_without_a_server_is_unreachable(tmp_path: Path, kind: str) -> None:
    """A connection attempt without a server is UNREACHABLE, and the message names the place."""
    endpoint = UnixEndpoint(tmp_path / "x.sock") if kind == "socket" else TcpEndpoint("127.0.0.1:1")
    with pytest.raises(UnavailableError, match=str(tmp_path) if kind == "socket" else "127.0.0.1:1") as caught:
        BlockingTransport.connect(endpoint)
    assert caught.value.reason == "UNREACHABLE"


def test_thread_that_waits_can_be_interrupted_by_the_close_of_the_link(tmp_path: Path) -> None:
    """Closing the connections of all threads ends a wait in another thread with CONNECTION_LOST."""
    asked = threading.Event()
    errors: list[BaseException] = []

    def serve(peer: Peer) -> None:
        peer.open()
        peer.call()
        asked.set()
        peer.call()

    def wait(near: BlockingClient) -> None:
        try:
            near.settled("x", None)
        except UnavailableError as error:
            errors.append(error)

    with scripted(tmp_path, serve) as endpoint:
        near = BlockingClient(endpoint)
        thread = threading.Thread(target=wait, args=(near,))
        thread.start()
        asked.wait()
        near.close()
        thread.join()
    assert [error.reason for error in errors if isinstance(error, UnavailableError)] == ["CONNECTION_LOST"]


def settle(peer: Peer) -> None:
    """Answers one call for the result of a job."""
    job = {"id": "x", "template": ["brew"], "state": 3, **dict.fromkeys(TIMES, 0)}
    job |= {"cancel_requested": False, "failure_reason": "", "extra": None}
    peer.send((peer.call().id, LAST, (job, {"state": 3})))


def test_connection_that_opens_during_the_close_is_closed(tmp_path: Path) -> None:
    """A thread that connects while another one closes the client keeps no connection."""
    is_asked, is_closed, ends = threading.Event(), threading.Event(), list[bytes]()
    errors: list[BaseException] = []

    def open_late(peer: Peer) -> None:
        peer.opening()
        is_asked.set()
        is_closed.wait(10)
        peer.send(Opened(VERSION))
        peer.line.settimeout(10)
        ends.append(peer.line.recv(1))

    with scripted(tmp_path, open_late) as endpoint:
        client = BlockingClient(endpoint)

        def wait() -> None:
            try:
                client.settled("x", 5)
            except UnavailableError as error:
                errors.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        is_asked.wait(10)
        client.close()
        is_closed.set()
        thread.join()
    assert ends == [b""]
    assert [type(error) for error in errors] == [UnavailableError]


def test_thread_keeps_its_connection(tmp_path: Path) -> None:
    """All calls of a thread use one connection: a connection for each call would cost more than the call."""
    openings = list[None]()

    def answer(peer: Peer) -> None:
        peer.open()
        openings.append(None)
        for _ in range(3):
            settle(peer)

    with scripted(tmp_path, answer) as endpoint:
        near = BlockingClient(endpoint)
        for _ in range(3):
            assert near.settled("x", None) is not None
        near.close()
    assert len(openings) == 1


def test_connection_that_was_lost_is_replaced(tmp_path: Path) -> None:
    """A thread whose connection was lost opens another one for its next call."""

    def answer(peer: Peer) -> None:
        peer.open()
        settle(peer)

    with scripted(tmp_path, answer, answer) as endpoint:
        near = BlockingClient(endpoint)
        assert near.settled("x", None) is not None
        try:
            again = near.settled("x", None)
        except UnavailableError:  # the call noticed the loss
            again = near.settled("x", None)
        assert again is not None
        near.close()


TIMES = ("created_ms", "started_ms", "finished_ms", "not_before_ms", "attempts")
