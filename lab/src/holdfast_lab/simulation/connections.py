"""Connections that carry bytes between simulated processes, and break.

A connection keeps the order of its bytes and may split them anywhere. A reset loses bytes in transit, and both ends
notice it at once. A break is noticed by each end at its own time. A stall stops one direction for a while.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any, cast

from holdfast_lab.simulation.event_loop import SimulatedLoop
from holdfast_lab.simulation.host import Host
from holdfast_lab.simulation.network import DOWN, UP, Network
from holdfast_lab.simulation.process import SimulatedProcess
from holdfast_lab.simulation.scheduler import Call, SimulatedScheduler

_DELAY_US = (20, 900)
_NOTICE_US = (100, 2_500_000)
_RESET_US = (20, 2_000)
_PERCENT = 100
_CUT = 0.2


class Program:
    """One run of a process other than the server, with its own event loop."""

    def __init__(self, name: str, connector: "Connector") -> None:
        self.name = name
        self._connector = connector
        clock, rng = connector.clock, connector.rng
        self.process = SimulatedProcess(clock, rng, _impossible, _impossible_error)
        self.loop = SimulatedLoop.of(clock, self.process, name, rng)
        self.loop.connect = lambda factory: connector.connect(self, factory)
        self.connections: list[Connection] = []

    def kill(self) -> None:
        """Kills the process; the server notices at its own time."""
        self._connector.programs.pop(self, None)
        for connection in self.connections:
            connection.client.sever()
            connection.break_off(is_reset=False)
        self.loop.end()

    @property
    def open_connections(self) -> "list[Connection]":
        """Connections that still carry data."""
        self.connections = [one for one in self.connections if not one.is_over]
        return [one for one in self.connections if not one.is_broken]


class Connector:
    """Makes connections to the current server, and breaks them."""

    def __init__(
        self, clock: SimulatedScheduler, host: Host, net: Network, faults: dict[str, int], rng: random.Random
    ) -> None:
        self.clock = clock
        self.rng = rng
        self._host = host
        self._net = net
        self._faults = faults
        self.programs: dict[Program, None] = {}
        host.on_down.append(self._lose_server)

    def program(self, name: str) -> Program:
        """Starts a process."""
        program = Program(name, self)
        self.programs[program] = None
        return program

    async def connect(
        self, program: Program, factory: Callable[[], asyncio.BaseProtocol]
    ) -> tuple[asyncio.Transport, Any]:
        """Connects; the server accepts a little later. Refused if no server runs."""
        await asyncio.sleep(self.delay_us() / 1_000_000)
        server = self._host.server
        if server is None:
            raise ConnectionRefusedError(111, "Connection refused")
        connection = Connection(self, program, server.process, server.loop)
        program.connections.append(connection)
        connection.client.carry(lambda: connection.server.attach(server.sockets.connection()), "accept")
        protocol = cast("asyncio.Protocol", factory())
        connection.client.attach(protocol)
        return connection.client, protocol

    def hits(self, fault: str) -> bool:
        """Whether a fault of single writes strikes now."""
        percent = self._faults.get(fault, 0)
        if not percent or self._net.is_healed or self.rng.randrange(_PERCENT) >= percent:
            return False
        self._host.fired(fault)
        return True

    def delay_us(self) -> int:
        """Draws the transit time of bytes."""
        return self.rng.randint(*_DELAY_US)

    def notice_us(self, *, is_reset: bool) -> int:
        """Draws the time until an end notices that the connection is gone."""
        if is_reset:
            return self.rng.randint(*_RESET_US)
        low, high = _NOTICE_US
        return int(low * (high / low) ** self.rng.random())

    @property
    def is_healed(self) -> bool:
        """Whether all faults are over."""
        return self._net.is_healed

    def _lose_server(self) -> None:
        for program in self.programs:
            for connection in program.open_connections:
                connection.server.sever()
                connection.break_off(is_reset=False)

    def close(self) -> None:
        """Kills all processes at the end of the run."""
        for program in list(self.programs):
            program.kill()


class Connection:
    """Both ends of one connection."""

    def __init__(self, connector: Connector, program: Program, process: SimulatedProcess, loop: SimulatedLoop) -> None:
        self.connector = connector
        self.name = program.name
        self.is_broken = False
        self.client = ConnectionEnd(self, program.process, program.loop, UP)
        self.server = ConnectionEnd(self, process, loop, DOWN)
        self.client.peer, self.server.peer = self.server, self.client

    @property
    def is_over(self) -> bool:
        """Whether both ends know that it has ended."""
        return self.client.is_lost and self.server.is_lost

    def break_off(self, *, is_reset: bool) -> None:
        """Breaks the connection; the ends notice a reset soon, and a break at their own time."""
        if self.is_broken:
            return
        self.is_broken = True
        for end in (self.client, self.server):
            end.lose_after(self.connector.notice_us(is_reset=is_reset))

    def stall(self, direction: str, for_us: int) -> None:
        """Stops one direction for a while."""
        end = self.client if direction == UP else self.server
        end.free_us = max(end.free_us, self.connector.clock.now_us + for_us)


class ConnectionEnd(asyncio.Transport):
    """One end: the transport that a protocol of the product writes to."""

    peer: "ConnectionEnd"

    def __init__(self, connection: Connection, process: SimulatedProcess, loop: SimulatedLoop, direction: str) -> None:
        super().__init__()
        self._connection = connection
        self._process = process
        self._loop = loop
        self._direction = direction
        self._protocol: asyncio.Protocol | None = None
        self._unread: list[Call] = []
        self._is_held = self._is_closing = self._is_severed = False
        #: The earliest arrival of the next bytes.
        self.free_us = 0
        self.is_lost = False

    # -- calls of protocols

    def write(self, data: Any) -> None:  # noqa: ANN401 - any bytes
        """Sends bytes, in one piece or in two."""
        data, connector = bytes(data), self._connection.connector
        cut = connector.rng.randrange(len(data)) if data and connector.rng.random() < _CUT else 0
        for piece in (data[:cut], data[cut:]):
            if piece:
                self.carry(lambda piece=piece: self.peer.receive(piece), "bytes")  # type: ignore[misc] # mypy cannot infer the default
        if self._direction == UP and connector.hits("reset-after-send"):
            wait_us = max(0, self.free_us - connector.clock.now_us) + connector.notice_us(is_reset=True)
            connection = self._connection
            connector.clock.after(wait_us, f"{connection.name} reset", lambda: connection.break_off(is_reset=True))

    def write_eof(self) -> None:
        """Ends the output of this side."""
        self.carry(self.peer.receive_eof, "eof")

    def close(self) -> None:
        """Closes this end; bytes that were sent still arrive."""
        if not self._is_closing:
            self._is_closing = True
            self.carry(self.peer.receive_eof, "eof")
            self._loop.call_soon(self.lose, None)

    def abort(self) -> None:
        """Same as `close`, as on a Unix socket."""
        self.close()

    def is_closing(self) -> bool:
        """Whether this end can no longer send."""
        return self._is_closing

    def pause_reading(self) -> None:
        """Pauses reading; arriving bytes wait."""
        self._is_held = True

    def resume_reading(self) -> None:
        """Resumes reading, starting with the bytes that wait."""
        self._is_held = False
        self._loop.call_soon(self._read)

    # -- calls of the connection

    def attach(self, protocol: asyncio.Protocol) -> None:
        """Attaches the protocol to the new connection."""
        self._protocol = protocol
        protocol.connection_made(self)

    def carry(self, call: Call, what: str) -> None:
        """Plans a call at the other end, after everything that was sent before."""
        connection, peer = self._connection, self.peer
        if connection.is_broken or self._is_severed:
            return
        clock = connection.connector.clock
        self.free_us = at_us = max(clock.now_us + connection.connector.delay_us(), self.free_us)
        kind = f"{connection.name} {what} {self._direction}"

        clock.after(at_us - clock.now_us, kind, lambda: peer.arrive(kind, call))

    def arrive(self, kind: str, call: Call) -> None:
        """Handles an arrival at this end, unless the connection is gone."""
        if not self._connection.is_broken and not self.is_lost:
            self._process.here(kind, lambda: self._loop.visit(call))

    def receive(self, data: bytes) -> None:
        """Receives bytes."""
        self._unread.append(lambda: self._deliver(data))
        self._read()

    def _deliver(self, data: bytes) -> None:
        if self._protocol is not None:
            self._protocol.data_received(data)

    def receive_eof(self) -> None:
        """Receives the end of the other side's output."""
        self._unread.append(self._end_input)
        self._read()

    def _end_input(self) -> None:
        if self._protocol is not None and not self._protocol.eof_received():
            self.close()

    def _read(self) -> None:
        while self._unread and not self._is_held and not self.is_lost:
            self._unread.pop(0)()

    def sever(self) -> None:
        """Marks the process of this end as gone: nothing leaves it any more."""
        self._is_severed = True

    def lose_after(self, notice_us: int) -> None:
        """Notifies this end, after a while, that the connection is gone."""
        kind = f"{self._connection.name} lost {self._direction}"
        reset = ConnectionResetError(104, "Connection reset by peer")
        self._process.enter(notice_us, kind, lambda: self._loop.visit(lambda: self.lose(reset)))

    def lose(self, error: Exception | None) -> None:
        """Notifies the protocol, once."""
        if not self.is_lost:
            self.is_lost = self._is_closing = True
            if self._protocol is not None:
                self._protocol.connection_lost(error)


def _impossible() -> None:
    raise AssertionError("this process has no disk")


def _impossible_error(error: BaseException) -> None:
    raise error
