"""One connection through a proxy.

- Bytes of a direction keep their order, and none is added.
- Dropped bytes leave a gap: no byte after it is delivered. Once dropping has ended, the next activity of either side
  resets the connection, as a router does that has lost its state.
- An end of file is treated like the bytes: delivered after them, only in its direction, and dropped with them.
"""

import asyncio
from contextlib import suppress

from holdfast_lab.torture.faults.link_condition import LinkCondition, Traffic, reset
from holdfast_lab.torture.faults.reply_detector import ReplyDetector

_CHUNK_BYTES = 1 << 16
#: Limit of chunks in transit: when it is reached, nothing more is read.
_CHUNKS_MAX = 64
#: A duplicate connection that does not read is closed, not waited for.
_TWIN_BUFFER_BYTES_MAX = 1 << 20

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Direction:
    """One direction of a connection."""

    def __init__(self, *, is_towards_server: bool, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        self.is_towards_server = is_towards_server
        self.source = source
        self.sink = sink
        #: Due time and bytes; empty bytes are the end of file.
        self.carried: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_CHUNKS_MAX)
        self.has_hole = False


class ProxyConnection:
    """Forwards between two ends under the current condition, until both have ended or it is cut."""

    def __init__(
        self, client: Ends, server: Ends, twin: Ends | None, condition: LinkCondition, traffic: Traffic
    ) -> None:
        self._condition = condition
        self._traffic = traffic
        self._out = _Direction(is_towards_server=True, source=client[0], sink=server[1])
        self._back = _Direction(is_towards_server=False, source=server[0], sink=client[1])
        self._twin = twin
        self._answers = ReplyDetector()
        self._is_over = asyncio.Event()
        self._has_silent_end = False

    async def run(self) -> None:
        """Forwards until the end; closes everything before it returns."""
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._read(way)) for way in (self._out, self._back)]
        if self._twin is not None:
            tasks.append(loop.create_task(self._ignore(self._twin[0])))
        carrying = loop.create_task(self._carry_both())
        try:
            await self._is_over.wait()
        finally:
            for task in (*tasks, carrying):
                task.cancel()
            try:
                ends = await asyncio.gather(carrying, *tasks, return_exceptions=True)
            finally:
                self._close()  # even if this task is being cancelled
        for end in ends:
            if isinstance(end, Exception):
                raise end

    def cut(self) -> None:
        """Resets both ends."""
        if not self._is_over.is_set():
            self._traffic.resets += 1
            reset(self._out.sink)
            reset(self._back.sink)
            self._is_over.set()

    def leave_twin(self) -> None:
        """Stops duplicating."""
        if self._twin is not None:
            self._twin[1].close()
            self._twin = None

    def mended(self) -> None:
        """Dropping has ended: resets the connection if an end closed it meanwhile."""
        if self._has_silent_end:
            self.cut()

    async def _carry_both(self) -> None:
        try:
            await asyncio.gather(self._carry(self._out), self._carry(self._back))
        finally:
            self._is_over.set()

    async def _read(self, way: _Direction) -> None:
        loop = asyncio.get_running_loop()
        is_open = True
        while is_open:
            try:
                said = await way.source.read(_CHUNK_BYTES)
            except OSError:
                self._lose(way)
                return
            is_open = bool(said)
            self._traffic.bytes_said += len(said)
            if self._condition.delay_s:
                self._traffic.effects.late_bytes += len(said)
            await way.carried.put((loop.time() + self._condition.delay_s, said))

    async def _carry(self, way: _Direction) -> None:
        loop = asyncio.get_running_loop()
        is_open = True
        while is_open:
            due, said = await way.carried.get()
            if (left_s := due - loop.time()) > 0:
                await asyncio.sleep(left_s)
            is_open = bool(said)
            try:
                await self._deliver(way, said)
            except OSError:
                # The receiver is gone.
                self._lose(way)
                return

    async def _deliver(self, way: _Direction, said: bytes) -> None:
        if self._is_swallowed(way):
            way.has_hole = True
            self._has_silent_end = self._has_silent_end or not said
            self._traffic.effects.swallowed_bytes += len(said)
            if not said:
                await self._is_over.wait()
            return
        if way.has_hole or (self._has_hole and not self._condition.is_swallowing):
            self.cut()
            return
        is_answer = not way.is_towards_server and bool(said) and self._answers.are_in(said)
        if is_answer and self._condition.is_cutting_answers:
            self._cut_answer()
            return
        await self._hand_over(way, said)

    async def _hand_over(self, way: _Direction, said: bytes) -> None:
        if way.is_towards_server:
            self._traffic.bytes_to_server += len(said)
            self._tell_twin(said)
        else:
            self._traffic.bytes_to_client += len(said)
        if said:
            way.sink.write(said)
            await way.sink.drain()
        elif way.sink.can_write_eof():
            way.sink.write_eof()

    def _is_swallowed(self, way: _Direction) -> bool:
        condition = self._condition
        return condition.is_swallowing_to_server if way.is_towards_server else condition.is_swallowing_to_client

    @property
    def _has_hole(self) -> bool:
        return self._out.has_hole or self._back.has_hole

    def _lose(self, way: _Direction) -> None:
        """Handles the loss of one end: resets the other, unless this direction is dropped."""
        if self._is_swallowed(way):
            self._has_silent_end = True
        else:
            self.cut()

    def _cut_answer(self) -> None:
        """Delivers all requests, and resets the client's connection without a response."""
        self._traffic.resets += 1
        self._traffic.effects.unanswered += 1
        while not self._out.carried.empty():
            self._out.sink.write(self._out.carried.get_nowait()[1])
        reset(self._back.sink)
        self._out.sink.close()
        self._is_over.set()

    def _tell_twin(self, said: bytes) -> None:
        if self._twin is None:
            return
        writer = self._twin[1]
        if writer.is_closing() or writer.transport.get_write_buffer_size() > _TWIN_BUFFER_BYTES_MAX:
            self._twin = None
            reset(writer)
        elif said:
            self._traffic.effects.doubled_bytes += len(said)
            writer.write(said)
        else:
            writer.write_eof()

    async def _ignore(self, reader: asyncio.StreamReader) -> None:
        """Discards the responses to duplicated requests."""
        with suppress(OSError):
            while await reader.read(_CHUNK_BYTES):
                pass

    def _close(self) -> None:
        self.leave_twin()
        for way in (self._out, self._back):
            way.sink.close()
