"""The network between the actors and the coordinator: messages are late, lost or repeated, connections break.

Unary calls may be dropped in both directions and may arrive twice; those of different callers overtake each other. A
stream keeps its order and stalls while its direction is partitioned; each side notices a break at its own time.
"""

import random
from collections.abc import Callable, Collection
from typing import Protocol

from holdfast.ledger.sessions import Hello, Session, SessionPush
from holdfast_lab.simulation.scheduler import Call, SimulatedScheduler
from holdfast_lab.simulation.server import SimulatedServer
from holdfast_lab.simulation.swarm import SwarmSettings
from holdfast_lab.simulation.violation import require

UP, DOWN = "up", "down"

Send = Callable[[SimulatedServer, Callable[[object], None]], None]
Hear = Callable[[object], None]

_DELAY_US = (20, 900)
_SLOW_US = (5_000, 900_000)
_NOTICE_US = (100, 2_500_000)
#: Both ends notice a reset soon.
_RESET_US = (20, 2_000)
_PERCENT = 100


class ServerHost(Protocol):
    """The place where the coordinator of a ledger runs."""

    #: Called when all servers end.
    on_down: list[Call]

    @property
    def server(self) -> SimulatedServer | None:
        """The server that a new connection reaches."""
        ...

    @property
    def had_room(self) -> bool:
        """Whether the leases of the coordinator can be compared with those that its workers keep."""
        ...

    def current_leases(self) -> Collection[int]:
        """Returns the leases of the coordinator, durable or not."""
        ...

    def fired(self, what: str) -> None:
        """Counts an event of this kind."""
        ...

    def enter(self, kind: str, call: Callable[[SimulatedServer], None]) -> bool:
        """Delivers a call to a server; returns False if there is none."""
        ...


class Network:
    """Carries messages to the process of the coordinator that runs when they arrive."""

    def __init__(
        self, clock: SimulatedScheduler, host: ServerHost, settings: SwarmSettings, rng: random.Random
    ) -> None:
        self.clock = clock
        self.host = host
        self._faults = settings.faults
        self._rng = rng
        self._blocked: dict[tuple[str, str], int] = {}
        self.is_healed = False
        self.streams: list[Stream] = []
        host.on_down.append(self._cut_streams)

    def hits(self, fault: str) -> bool:
        """Whether a fault of single messages strikes now."""
        percent = self._faults.get(fault, 0)
        if not percent or self.is_healed or self._rng.randrange(_PERCENT) >= percent:
            return False
        self.host.fired(fault)
        return True

    def delay_us(self) -> int:
        """Draws the transit time of a message."""
        return self._rng.randint(*(_SLOW_US if self.hits("slow-message") else _DELAY_US))

    def notice_us(self) -> int:
        """Draws the time until a broken connection is noticed."""
        low, high = _NOTICE_US
        return int(low * (high / low) ** self._rng.random())

    def reset_us(self) -> int:
        """Draws the time until a reset is noticed."""
        return self._rng.randint(*_RESET_US)

    def block(self, who: str, direction: str, for_us: int) -> None:
        """Blocks one direction between this actor and the coordinator for a while."""
        self._blocked[who, direction] = self.clock.now_us + for_us

    def blocked_us(self, who: str, direction: str) -> int:
        """Returns how much longer the direction is blocked."""
        return 0 if self.is_healed else max(0, self._blocked.get((who, direction), 0) - self.clock.now_us)

    # -- unary

    def ask(self, who: str, kind: str, send: Send, judge: Hear, hear: Hear) -> None:
        """Sends a request; `judge` gets every response that leaves, `hear` those that arrive."""
        for _ in range(2 if self.hits("duplicate") else 1):
            if not self.blocked_us(who, UP) and not self.hits("drop-request"):
                self.clock.after(self.delay_us(), kind, lambda: self._arrive(who, kind, send, judge, hear))

    def _arrive(self, who: str, kind: str, send: Send, judge: Hear, hear: Hear) -> None:
        def done(reply: object) -> None:
            judge(reply)
            if not self.blocked_us(who, DOWN) and not self.hits("drop-reply"):
                self.clock.after(self.delay_us(), f"{kind} reply", lambda: hear(reply))

        self.host.enter(kind, lambda server: send(server, done))

    # -- streams

    def open_stream(
        self, who: str, hello: Hello, hear: Callable[["Stream", SessionPush], None], closed: Call
    ) -> "Stream":
        """Connects; the session begins when the hello arrives."""
        stream = Stream(self, who, hello, hear, closed)
        self.streams = [other for other in self.streams if not other.is_over] + [stream]
        return stream

    def _cut_streams(self) -> None:
        for stream in self.streams:
            stream.lose_server()

    def cut_streams_of(self, server: SimulatedServer) -> None:
        """Ends the connections to one of several servers."""
        for stream in self.streams:
            if stream.server is server:
                stream.lose_server()


class Stream:
    """One connection of a streaming worker, as seen by both sides."""

    def __init__(
        self, network: Network, who: str, hello: Hello, hear: Callable[["Stream", SessionPush], None], closed: Call
    ) -> None:
        self._net = network
        self.who = who
        self._hear = hear
        self._closed = closed
        self._free_us = {UP: 0, DOWN: 0}
        self.server: SimulatedServer | None = None
        self.session = Session(hello, self._push, self._supersede)
        self.judge: Callable[[SessionPush], None] = lambda _: None
        self.is_broken = False
        self.is_over = False
        self.is_server_done = False
        network.clock.after(self._arrival_us(UP), f"{who} hello", self._hello)

    def _arrival_us(self, direction: str) -> int:
        """Returns the delay of a message sent now; it never overtakes an earlier one."""
        net = self._net
        at_us = net.clock.now_us + net.delay_us() + net.blocked_us(self.who, direction)
        self._free_us[direction] = at_us = max(at_us, self._free_us[direction])
        return at_us - net.clock.now_us

    def _hello(self) -> None:
        if self.is_broken or self.is_over:
            return
        self.server = server = self._net.host.server
        if server is None:
            self._tell_worker_closed()
        else:
            server.process.here(f"{self.who} hello", lambda: server.dispatcher.attach(self.session))

    # -- calls of the worker

    def send(self, kind: str, call: Callable[[SimulatedServer, Session], None]) -> None:
        """Sends a message to the coordinator, in order."""
        if not self.is_broken:
            self._net.clock.after(self._arrival_us(UP), kind, lambda: self._arrive(kind, call))

    def _arrive(self, kind: str, call: Callable[[SimulatedServer, Session], None]) -> None:
        server = self.server
        if not self.is_broken and server is not None and server.process.is_alive:
            server.process.here(kind, lambda: self._handle(server, call))

    def _handle(self, server: SimulatedServer, call: Callable[[SimulatedServer, Session], None]) -> None:
        if not self.is_server_done:
            call(server, self.session)

    def hang_up(self) -> None:
        """Closes the connection from the worker's side."""
        self.send(f"{self.who} bye", lambda server, _: self._end(server, is_leaving=True))
        self.is_over = True

    def abandon(self) -> None:
        """Ends the worker without a goodbye; the coordinator notices at its own time."""
        self.is_over = True
        self.break_off()

    # -- calls of the coordinator

    def _push(self, push: SessionPush) -> None:
        self.judge(push)
        if not self.is_broken:
            self._net.clock.after(self._arrival_us(DOWN), f"{self.who} push", lambda: self._deliver(push))

    def _deliver(self, push: SessionPush) -> None:
        if not self.is_broken and not self.is_over:
            self._hear(self, push)

    def _supersede(self) -> None:
        server = self.server
        assert server is not None
        server.process.enter(self._net.delay_us(), f"{self.who} superseded", lambda: self._end(server))
        self._tell_worker_closed()

    def _end(self, server: SimulatedServer, *, is_leaving: bool = False) -> None:
        """Ends the handler of the connection, which always detaches."""
        if self.is_server_done:
            return
        self.is_server_done = True
        current = server.dispatcher._current.get(self.who)  # noqa: SLF001 - the session whose end revokes leases
        server.dispatcher.detach(self.session, is_leaving=is_leaving)
        if current is not None and current is not self.session:
            after = server.dispatcher._current.get(self.who)  # noqa: SLF001
            require(after is current, f"the end of an old session of {self.who} ended the new one")

    # -- events of both sides

    def break_off(self, *, is_reset: bool = False) -> None:
        """Breaks the connection: both ends notice a reset soon, and a break at their own time."""
        if self.is_broken:
            return
        self.is_broken = True
        server, notice_us = self.server, self._net.reset_us if is_reset else self._net.notice_us
        if server is not None and server.process.is_alive:
            server.process.enter(notice_us(), f"{self.who} lost", lambda: self._end(server))
        self._tell_worker_closed(notice_us())

    def lose_server(self) -> None:
        """Handles the end of the coordinator's process."""
        if self.server is not None and not self.is_broken:
            self.is_broken = True
            self._tell_worker_closed(self._net.notice_us())

    def _tell_worker_closed(self, after_us: int | None = None) -> None:
        delay_us = self._net.delay_us() if after_us is None else after_us
        self._net.clock.after(delay_us, f"{self.who} closed", self._worker_hears_end)

    def _worker_hears_end(self) -> None:
        if not self.is_over:
            self.is_over = True
            self._closed()
