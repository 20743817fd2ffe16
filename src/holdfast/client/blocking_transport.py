"""A blocking conversation over the Unix socket of a directory, on the caller's own thread.

`call` is a coroutine, as in every carrier, but it never suspends: it completes in its first step. This saves a sync
caller two switches between threads. A connection belongs to one thread and has one call at a time.
"""

import contextlib
import os
import socket
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Self

from google.protobuf.message import Message

from holdfast import limits
from holdfast.client.socket_connection import unreachable
from holdfast.client.transport import Response, raise_refusal
from holdfast.errors import DeadlineExceededError, UnavailableError, UnimplementedError
from holdfast.proto import holdfast_pb2 as pb
from holdfast.proto.frames import CONVERSATION, FrameReader, MalformedFrameError, framed

_READ_BYTES = 65_536


class BlockingCarrier:
    """One connection. Any failure closes it, because the request may have been sent only in part."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._reader = FrameReader(limits.MESSAGE_BYTES_MAX)
        self._last_id = 0
        self.is_open = True
        #: The timeout of calls without a deadline; None means no timeout.
        self.patience_s: float | None = None

    @classmethod
    def connect(cls, path: Path) -> Self:
        """Connects to the socket; `UnavailableError` (UNREACHABLE) if no server listens there."""
        line = socket.socket(socket.AF_UNIX)
        try:
            folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
            try:
                line.connect(f"/proc/self/fd/{folder}/{path.name}")
            finally:
                os.close(folder)
            line.sendall(CONVERSATION)
        except OSError as error:
            line.close()
            raise unreachable(path, error.strerror or str(error)) from error
        return cls(line)

    async def call(self, method: str, request: Message, response: type[Response], deadline_s: float | None) -> Response:
        """Sends a request and blocks this thread until the response arrives."""
        self._last_id += 1
        call = pb.Call(id=self._last_id, method=method, body=request.SerializeToString())
        try:
            self._line.settimeout(deadline_s if deadline_s is not None else self.patience_s)
            self._line.sendall(framed(call.SerializeToString()))
            reply = self._receive()
        except TimeoutError:
            self.drop()
            message = f"no response to {method} in time; whether it took effect is unknown"
            raise DeadlineExceededError(message) from None
        except (OSError, MalformedFrameError) as error:
            self.drop()
            raise _lost(str(error)) from error
        except BaseException:  # such as KeyboardInterrupt, at any step
            self.drop()
            raise
        raise_refusal(reply)
        return response.FromString(reply.body)

    def stream(self, method: str, request: Message, response: type[Response]) -> AsyncGenerator[Response, None]:
        """Raises `UnimplementedError`: a blocking connection has no streams."""
        raise UnimplementedError(f"{method} is a stream, and a blocking connection supports single calls only")

    async def close(self) -> None:
        """Closes the connection."""
        self.drop()

    def drop(self) -> None:
        """Closes the connection at once, even while a thread waits in it."""
        self.is_open = False
        with contextlib.suppress(OSError):  # it may be closed already
            self._line.shutdown(socket.SHUT_RDWR)
        self._line.close()

    def __del__(self) -> None:
        self._line.close()  # the thread that owned it has ended

    def _receive(self) -> pb.Reply:
        while True:
            data = self._line.recv(_READ_BYTES)
            if not data:
                raise ConnectionResetError("the server closed the connection")
            for message in self._reader.feed(data):
                reply = pb.Reply.FromString(message)
                if reply.id == self._last_id:
                    return reply


def _lost(why: str) -> UnavailableError:
    return UnavailableError(f"the connection to the server was lost: {why}", reason="CONNECTION_LOST")
