"""`WorkApi` over the wire: a worker's session with a server.

While a message cannot be sent, further data is collected in the next message. So a busy worker sends few large messages
instead of many small ones.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Collection, Sequence

import msgspec

from holdfast import limits
from holdfast.client.endpoints import Endpoint
from holdfast.client.wire_line import WireLine, open_line
from holdfast.core.commands import ReportRow
from holdfast.core.model import Note
from holdfast.errors import FINAL, HoldfastError, UnavailableError
from holdfast.ports import Directive, Introduction
from holdfast.wire.messages import ERROR, WORK, WorkerMessage, decode_failure, decode_push, encode

#: So few outcomes are sent at once.
_AT_ONCE_ROWS = 2
#: How long `close` waits until the server ends the session.
_FAREWELL_S = 1.0
#: An upper bound for an outcome without its output and texts, and for a character of its texts.
_ROW_BYTES, _CHAR_BYTES = 128, 4
_decode_directive = msgspec.msgpack.Decoder(Directive).decode


class WireWork:
    """Opens sessions with the server at one endpoint."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    async def open(self, introduction: Introduction) -> "WireSession":
        """Connects and introduces the worker; `UnavailableError` if no server answers."""
        session = WireSession()
        try:
            await session.start(self._endpoint, introduction)
        except HoldfastError as error:
            await session.close()
            raise _kept(error) from error
        except BaseException:
            await session.close()
            raise
        return session


class WireSession:
    """One session over one connection."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._line: WireLine | None = None
        #: Messages to send; new data is added to the last one while it fits.
        self._outbox = [WorkerMessage()]
        self._outbox_bytes = 0
        self._is_due = False
        self._directives: deque[Directive] = deque()
        self._news = asyncio.Event()
        self._ending: HoldfastError | None = None

    async def start(self, endpoint: Endpoint, introduction: Introduction) -> None:
        """Connects, and sends the introduction."""
        message = encode(WorkerMessage(introduction))
        self._line = await open_line(endpoint, WORK, self._take, self._news.set, first_message=message)

    async def next(self) -> Directive:
        """Waits for the next message of the server."""
        while not self._directives:
            if self._ending is not None or not self._is_open:
                raise self._ended()
            self._news.clear()
            await self._news.wait()
        return self._directives.popleft()

    async def want(self, count: int) -> None:
        """Adds credits."""
        self._outbox[-1].credits += count
        await self._sent()

    async def report(self, report_id: int, rows: Sequence[ReportRow]) -> None:
        """Sends outcomes; reports that share a message are acknowledged by the id of the last one."""
        self._make_room(sum([_ROW_BYTES + len(row.output) + _CHAR_BYTES * len(row.summary) for row in rows]))
        box = self._outbox[-1]
        box.outcomes += rows
        box.report_id = report_id
        if len(rows) <= _AT_ONCE_ROWS and not self._is_due and self._line is not None and self._line.is_writable:
            self._flush()  # a lone outcome does not wait for the end of the loop's iteration
        else:
            await self._sent()

    async def note(self, notes: Sequence[Note]) -> None:
        """Sends notes of running attempts."""
        for note in notes:
            self._make_room(_ROW_BYTES + _CHAR_BYTES * (len(note.message) + sum(map(len, note.lines))))
            self._outbox[-1].notes.append(note)
        await self._sent()

    async def extend(self) -> None:
        """Sends a heartbeat."""
        self._outbox[-1].is_heartbeat = True
        await self._sent()

    async def release(self, tokens: Collection[int]) -> None:
        """Hands leases back."""
        self._outbox[-1].released += tokens
        await self._sent()

    async def recall(self) -> None:
        """Takes unused credits back; the directive with `is_recalled` confirms that no more leases are in flight."""
        for message in self._outbox:
            message.credits = 0  # not sent yet
        self._outbox[-1].is_recalling = True
        await self._sent()

    async def drain(self) -> None:
        """Requests that no more leases are granted."""
        self._outbox[-1].is_draining = True
        await self._sent()

    async def close(self) -> None:
        """Sends pending data and a goodbye, then ends the session; a lost session is only closed."""
        line = self._line
        if line is None:
            return
        if self._is_open and self._ending is None:
            with contextlib.suppress(HoldfastError, TimeoutError):  # it may have ended already
                async with asyncio.timeout(_FAREWELL_S):
                    await self._say_goodbye(line)
        line.drop()
        await line.closed.wait()

    async def _say_goodbye(self, line: WireLine) -> None:
        self._outbox[-1].is_leaving = True
        await line.writable()
        self._flush()
        line.finish()
        while True:
            await self.next()

    @property
    def _is_open(self) -> bool:
        return self._line is not None and self._line.is_open

    def _make_room(self, size: int) -> None:
        if self._outbox_bytes + size > limits.BATCH_BYTES_MAX:
            self._outbox.append(WorkerMessage())
            self._outbox_bytes = 0
        self._outbox_bytes += size

    async def _sent(self) -> None:
        """Sends the data of one iteration of the loop together, at its end; delays a caller that sends too much."""
        line = self._line
        assert line is not None
        if not line.is_open:
            raise self._ended()
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._send_due)
        if not line.is_writable:
            await line.writable()

    def _send_due(self) -> None:
        self._is_due = False
        if self._line is not None and self._line.is_writable:
            self._flush()
        elif self._line is not None:
            self._is_due = True
            task = self._loop.create_task(self._line.writable())
            task.add_done_callback(lambda _: self._send_due())

    def _flush(self) -> None:
        outbox, self._outbox, self._outbox_bytes = self._outbox, [WorkerMessage()], 0
        assert self._line is not None
        for message in outbox:
            if message != _NOTHING:
                self._line.send(encode(message))

    def _take(self, message: bytes) -> None:
        push = decode_push(message)
        if push.kind == ERROR:
            self._ending = _kept(decode_failure(push.body).error())
        else:
            self._directives.append(_decode_directive(push.body))
        self._news.set()

    def _ended(self) -> HoldfastError:
        problem = self._line.problem or "the server closes it" if self._line is not None else "it was never opened"
        return self._ending or UnavailableError(f"the session has ended: {problem}", reason="CONNECTION_LOST")


_NOTHING = WorkerMessage()


def _kept(error: HoldfastError) -> HoldfastError:
    """Keeps errors that a new session cannot fix; all others become `UnavailableError`, which is retried."""
    return error if isinstance(error, FINAL) else UnavailableError(error.message, reason=error.reason)
