"""Frames: four bytes of length, big endian, then one message. Both ends of a connection use this module."""

import asyncio
from struct import Struct
from typing import cast

_LENGTH = Struct(">I")
LENGTH_BYTES = _LENGTH.size
#: Messages of one iteration of the loop are written before its end, if they are larger than this together.
_PENDING_BYTES_MAX = 262_144


class MalformedFrameError(Exception):
    """The received bytes are not a valid frame; the connection is closed."""


def framed(message: bytes) -> bytes:
    """Returns the message with its length in front."""
    return _LENGTH.pack(len(message)) + message


def length_of(data: bytes | bytearray, start: int = 0) -> int:
    """Returns the length that the frame at `start` announces."""
    return int(_LENGTH.unpack_from(data, start)[0])


class FrameReader:
    """Puts messages together from pieces of any size."""

    __slots__ = ("_buffer", "_bytes_max", "_needed")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._buffer = bytearray()
        self._needed = 0

    @property
    def is_between(self) -> bool:
        """Whether no incomplete message is buffered."""
        return not self._buffer

    @property
    def announced_bytes(self) -> int:
        """The size of the incomplete message, with its length, as far as that was received; otherwise 0."""
        return self._needed

    def feed(self, data: bytes) -> list[bytes]:
        """Returns the messages that are complete now; `MalformedFrameError` for one that is too long."""
        if not self._buffer:
            return self._cut(data)
        self._buffer += data
        if len(self._buffer) < self._needed:  # a long message, which is not complete yet
            return []
        buffer, self._buffer = self._buffer, bytearray()
        return self._cut(bytes(buffer))

    def _cut(self, data: bytes) -> list[bytes]:
        messages, start, size = [], 0, len(data)
        self._needed = 0
        while size - start >= LENGTH_BYTES:
            (length,) = _LENGTH.unpack_from(data, start)
            if length > self._bytes_max:
                raise MalformedFrameError(f"expected a message of at most {self._bytes_max} bytes, got {length}")
            end = start + LENGTH_BYTES + length
            if end > size:
                self._needed = end - start
                break
            messages.append(data[start + LENGTH_BYTES : end])
            start = end
        self._buffer += data[start:]
        return messages


class FramedProtocol(asyncio.Protocol):
    """One end of a connection. Messages of one iteration of the loop are sent together, the first one at once."""

    def __init__(self, bytes_max: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader(bytes_max)
        self._transport: asyncio.Transport | None = None
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._has_sent = False
        self._holds: set[str] = set()
        self._writable: asyncio.Event | None = None

    # -- for subclasses

    def take(self, message: bytes) -> None:
        """Handles a complete message."""
        raise NotImplementedError

    def spoiled(self, error: MalformedFrameError) -> None:
        """Handles input that is not a valid frame; the connection is being dropped."""

    def send(self, message: bytes) -> None:
        """Sends a message, or buffers it; a caller that sends much awaits `writable` first."""
        if self._has_sent:
            self._pending.append(_LENGTH.pack(len(message)) + message)
            self._pending_bytes += len(message)
            if self._pending_bytes > _PENDING_BYTES_MAX:  # so that `is_writable` counts them
                self._write_pending()
        elif self._transport is not None:
            self._transport.write(_LENGTH.pack(len(message)) + message)
            self._has_sent = True
            self._loop.call_soon(self._flush)

    async def writable(self) -> None:
        """Waits until the other side reads, or the connection has ended; another caller may have filled it again."""
        while self._writable is not None:
            await self._writable.wait()

    @property
    def is_writable(self) -> bool:
        """Whether the other side reads what it is sent."""
        return self._writable is None

    @property
    def is_open(self) -> bool:
        """Whether messages can still be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def close(self) -> None:
        """Closes the connection after all messages were sent."""
        if self._transport is not None:
            self._flush()
            self._transport.close()

    def drop(self) -> None:
        """Closes the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def finish(self) -> None:
        """Tells the other side that nothing more will be sent."""
        if self.is_open:
            self._flush()
            transport = cast("asyncio.Transport", self._transport)
            if transport.can_write_eof():
                transport.write_eof()

    def hold(self, why: str, *, is_held: bool) -> None:
        """Pauses reading for a reason, or resumes it once no other reason is left."""
        was_held = bool(self._holds)
        if is_held:
            self._holds.add(why)
        else:
            self._holds.discard(why)
        if self._transport is None or self._transport.is_closing() or was_held == bool(self._holds):
            return
        if self._holds:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # -- for the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Stores the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Passes complete messages to `take`."""
        try:
            messages = self._reader.feed(data)
        except MalformedFrameError as error:
            self.spoiled(error)
            self.drop()
            return
        for message in messages:
            self.take(message)

    def pause_writing(self) -> None:
        """Notes that the other side reads too slowly."""
        self._writable = self._writable or asyncio.Event()

    def resume_writing(self) -> None:
        """Notes that the other side has caught up."""
        writable, self._writable = self._writable, None
        if writable is not None:
            writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Drops unsent messages."""
        self._transport = None
        self._pending.clear()
        self._pending_bytes = 0
        self.resume_writing()

    def _flush(self) -> None:
        self._has_sent = False
        self._write_pending()

    def _write_pending(self) -> None:
        if self._pending:
            pending, self._pending, self._pending_bytes = self._pending, [], 0
            if self.is_open:
                cast("asyncio.Transport", self._transport).write(b"".join(pending))
