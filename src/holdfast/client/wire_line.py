"""One connection of the wire, on an event loop."""

import asyncio
from collections.abc import Callable

from holdfast import __version__, limits
from holdfast.client.endpoints import CONNECT_S, FOLLOWS_MAX, REDIRECTS_MAX, Endpoint, closed_early
from holdfast.errors import InvalidArgumentError, UnavailableError
from holdfast.wire.frames import FramedProtocol, MalformedFrameError, framed
from holdfast.wire.messages import (
    MAGIC,
    MALFORMED,
    NO_SHARD,
    NOT_LEADER,
    OPENED_BYTES_MAX,
    OPENING_BYTES_MAX,
    VERSION,
    NotLeaderError,
    Opened,
    Opening,
    decode_opened,
    encode,
    error_named,
)

_NOT_WIRE = "the server does not speak Holdfast's wire protocol; it may be older than release 0.2, or another program"


def opening_bytes(purpose: str, token: str, shard: int = NO_SHARD) -> bytes:
    """Returns the first bytes of a connection; `InvalidArgumentError` for a token that no server reads."""
    try:
        opening = encode(Opening(VERSION, VERSION, purpose, token, __version__, shard))
    except UnicodeEncodeError:
        raise InvalidArgumentError("the token must be text that UTF-8 can encode", reason="TOKEN_INVALID") from None
    if len(opening) > OPENING_BYTES_MAX:
        message = f"the token is too long: {len(token)} characters; use one that `holdfast token create` has made"
        raise InvalidArgumentError(message, reason="TOKEN_INVALID")
    return MAGIC + framed(opening)


def check_opened(message: bytes) -> Opened:
    """Checks and returns the first message of a server; raises its error, or `NotWireError` for anything else."""
    try:
        opened = decode_opened(message)
    except MALFORMED:
        raise NotWireError from None
    if opened.version != VERSION and not opened.code:
        raise NotWireError
    if opened.version != VERSION and opened.reason == NOT_LEADER:
        raise NotLeaderError(opened.message, opened.leader)
    if opened.version != VERSION:
        raise error_named(opened.code, opened.reason, opened.message)
    return opened


class NotWireError(Exception):
    """The server speaks something else on this port."""


class WireLine(FramedProtocol):
    """The client's end. Calls `take_message` for each message, and `lost` once, when the connection has ended.

    It calls neither before the server has accepted the opening: the owner may then use another connection.
    """

    def __init__(self, first: bytes, take_message: Callable[[bytes], None], lost: Callable[[], None]) -> None:
        super().__init__(limits.MESSAGE_BYTES_MAX)
        self._first = first
        self._lost = lost
        self._take_message = take_message
        self.opened: asyncio.Future[Opened] = self._loop.create_future()
        self._is_accepted = False
        self.problem = ""
        self.closed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Sends the opening."""
        super().connection_made(transport)
        assert self._transport is not None
        self._transport.write(self._first)

    def take(self, message: bytes) -> None:
        """Checks the server's opening; passes other messages to the owner."""
        if self._is_accepted:
            self._pass_on(message)
        if self.opened.done():
            return
        try:
            opened = check_opened(message)
        except Exception as error:  # noqa: BLE001 - raised again in `open_line`
            self._fail(error)
        else:
            self._is_accepted = True
            self.opened.set_result(opened)

    def _pass_on(self, message: bytes) -> None:
        try:
            self._take_message(message)
        except MALFORMED as error:
            self.problem = f"the server sent a message that cannot be decoded: {error}"
            self.drop()

    def spoiled(self, error: MalformedFrameError) -> None:
        """Keeps the error as the reason of the loss."""
        self.problem = str(error)
        if not self.opened.done():
            self._fail(NotWireError())

    def _fail(self, error: Exception) -> None:
        """Ends the wait for the opening; without a log line if the owner has given it up while it connected."""
        self.opened.set_exception(error)
        self.opened.exception()

    def connection_lost(self, exc: Exception | None) -> None:
        """Notifies the owner."""
        super().connection_lost(exc)
        self.problem = self.problem or (str(exc) if exc else "the server closed the connection")
        self.closed.set()
        if not self.opened.done():
            is_other = self._reader.announced_bytes > OPENED_BYTES_MAX
            error = NotWireError() if is_other else ConnectionResetError(self.problem)
            error.__cause__ = exc
            self._fail(error)
        if self._is_accepted:
            self._lost()


async def open_line(
    endpoint: Endpoint,
    purpose: str,
    take_message: Callable[[bytes], None],
    lost: Callable[[], None],
    *,
    within_s: float = CONNECT_S,
    first_message: bytes = b"",
) -> WireLine:
    """Connects and waits for the server's opening; raises its refusal, or `UnavailableError` if no server answers.

    `first_message` is sent together with the opening, so that it does not wait for the server's.
    """
    first = opening_bytes(purpose, endpoint.token, endpoint.shard) + (framed(first_message) if first_message else b"")
    redirects = follows = 0
    while True:
        line = await endpoint.connect(lambda: WireLine(first, take_message, lost))
        try:
            async with asyncio.timeout(min(within_s, CONNECT_S)):
                await line.opened
        except ConnectionResetError as error:
            endpoint.follow("")
            raise closed_early(endpoint, error.__cause__ or error) from error
        except NotWireError:
            line.drop()
            redirects += 1
            if redirects <= REDIRECTS_MAX and await asyncio.to_thread(endpoint.redirect):
                continue
            raise not_wire(endpoint) from None
        except NotLeaderError as error:
            line.drop()
            follows += 1
            if follows > FOLLOWS_MAX or not endpoint.follow(error.leader):
                raise
            continue
        except TimeoutError:
            line.drop()
            endpoint.follow("")
            raise closed_early(endpoint, TimeoutError("it did not answer in time")) from None
        except BaseException:
            line.drop()
            raise
        return line


def not_wire(endpoint: Endpoint) -> UnavailableError:
    """Returns the error for a server that speaks something else, or whose port of the wire cannot be reached."""
    if endpoint.missed_port:
        where = endpoint.unreachable("").message.partition(": ")[0].removeprefix("no server answers at ")
        return UnavailableError(
            f"the server at {where} serves Holdfast's own clients on port {endpoint.missed_port}, which cannot be"
            " reached; publish that port, or use its address",
            reason="UNREACHABLE",
        )
    return UnavailableError(f"{endpoint.unreachable('').message.partition(': ')[0]}: {_NOT_WIRE}", reason="NOT_WIRE")
