"""Frames on a Unix socket: four bytes of length, big endian, then one message.

The first byte from a client selects the kind of connection, a conversation or a worker. Both ends use this module.
"""

import asyncio
from struct import Struct
from typing import cast

CONVERSATION = b"C"
WORKER = b"W"

_LENGTH = Struct(">I")


class MalformedFrameError(Exception):
    """The received bytes are not a frame; nothing after them can be read."""


def framed(message: bytes) -> bytes:
    """Returns the message as a frame."""
    return _LENGTH.pack(len(message)) + message


class FrameReader:
    """Assembles messages from the received pieces."""

    __slots__ = ("_buffer", "_bytes_max", "_needed")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._buffer = bytearray()
        self._needed = 0

    @property
    def is_between(self) -> bool:
        """Whether no part of a message is buffered."""
        return not self._buffer

    def feed(self, data: bytes) -> list[bytes]:
        """Returns the messages that are complete now; `MalformedFrameError` for one that is too long."""
        if not self._buffer:
            return self._cut(data)
        self._buffer += data
        if len(self._buffer) < self._needed:  # a long message is parsed when it is complete
            return []
        buffer, self._buffer = self._buffer, bytearray()
        return self._cut(bytes(buffer))

    def _cut(self, data: bytes) -> list[bytes]:
        messages, start, size = [], 0, len(data)
        self._needed = 0
        while size - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(data, start)
            if length > self._bytes_max:
                raise MalformedFrameError(f"expected a message of at most {self._bytes_max} bytes, got {length}")
            end = start + _LENGTH.size + length
            if end > size:
                self._needed = end - start
                break
            messages.append(data[start + _LENGTH.size : end])
            start = end
        self._buffer += data[start:]
        return messages


class FramedProtocol(asyncio.Protocol):
    """One end of a connection. The first message of a loop iteration is written at once, the others together."""

    def __init__(self, bytes_max: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader(bytes_max)
        self._transport: asyncio.Transport | None = None
        self._pending: list[bytes] = []
        self._has_sent = False
        self._holds: set[str] = set()
        self._writable = asyncio.Event()
        self._writable.set()

    # -- for subclasses and callers

    def take(self, message: bytes) -> None:
        """Handles a received message."""
        raise NotImplementedError

    def spoiled(self, error: MalformedFrameError) -> None:
        """Called for a malformed frame, before the connection is dropped."""

    def send(self, message: bytes) -> None:
        """Sends a message, or buffers it; a caller that sends much awaits `writable` first."""
        if self._has_sent:
            self._pending.append(_LENGTH.pack(len(message)) + message)
        elif self._transport is not None:
            self._transport.write(_LENGTH.pack(len(message)) + message)
            self._has_sent = True
            self._loop.call_soon(self._flush)

    async def writable(self) -> None:
        """Waits until the write buffer has room or the connection has ended."""
        await self._writable.wait()

    @property
    def is_writable(self) -> bool:
        """Whether the write buffer has room."""
        return self._writable.is_set()

    @property
    def is_open(self) -> bool:
        """Whether messages can still be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def close(self) -> None:
        """Closes the connection after all messages are sent."""
        if self._transport is not None:
            self._flush()
            self._transport.close()

    def drop(self) -> None:
        """Closes the connection at once; unsent messages are lost."""
        if self._transport is not None:
            self._transport.abort()

    def finish(self) -> None:
        """Sends the end of the stream after all messages; reading continues."""
        if self.is_open:
            self._flush()
            cast("asyncio.Transport", self._transport).write_eof()

    def hold(self, why: str, *, is_held: bool) -> None:
        """Adds or removes a reason to pause reading; reading resumes when no reason is left."""
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
        """Passes complete messages to `take`; drops the connection after a malformed frame."""
        try:
            messages = self._reader.feed(data)
        except MalformedFrameError as error:
            self.spoiled(error)
            self.drop()
            return
        for message in messages:
            self.take(message)

    def pause_writing(self) -> None:
        """Makes `writable` wait: the write buffer is full."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Wakes `writable`: the write buffer has room again."""
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Discards unsent messages and wakes `writable`."""
        self._transport = None
        self._pending.clear()
        self._writable.set()

    def _flush(self) -> None:
        self._has_sent = False
        if self._pending:
            pending, self._pending = self._pending, []
            if self.is_open:
                cast("asyncio.Transport", self._transport).write(b"".join(pending))
