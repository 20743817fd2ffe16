"""The loop of `holdfast top`: takes samples, shows them, and reads keys."""

import asyncio
import math
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.text import Text

from holdfast.cli.connection import ServerConnection
from holdfast.cli.text import print_json, printable
from holdfast.cli.top_numbers import TopSample, Trend
from holdfast.cli.top_view import TopFrame, lines, screen
from holdfast.core.lifecycle import FAILED
from holdfast.errors import UnavailableError
from holdfast.ports import JobQuery

if TYPE_CHECKING:
    from holdfast.client.link import Client

#: The number of failed jobs whose reasons are read.
_FAILED_LOOKED_AT = 200
_KEY_S = 0.2


async def look(client: "Client", known: TopSample | None = None) -> TopSample:
    """Takes a sample of the server; requests the failed jobs only if their number has changed."""
    stats, queues, workers = await asyncio.gather(client.stats(), client.queues(), client.workers())
    count = stats.states.get(FAILED.name, 0)
    if known is not None and known.stats.states.get(FAILED.name, 0) == count:
        failed = known.failed
    else:
        query = JobQuery(states=frozenset({FAILED}))
        failed = (await client.find(query, "", _FAILED_LOOKED_AT)).jobs if count else []
    return TopSample(stats, queues, workers, failed)


async def print_once(client: "Client", interval_s: float, place: str, *, as_json: bool) -> None:
    """Takes two samples, which rates need, and prints the result."""
    trend = Trend()
    first = await look(client)
    trend.add(first.stats)
    await asyncio.sleep(interval_s)
    last = await look(client, first)
    trend.add(last.stats)
    frame = TopFrame(last, trend, place)
    if as_json:
        print_json(frame.json())
    else:
        print("\n".join(lines(frame)))


class TopLoop:
    """Shows samples until the user quits."""

    def __init__(self, place: str, interval_s: float) -> None:
        self._place = place
        self._interval_s = interval_s
        self._trend = Trend()
        self._look: TopSample | None = None
        self._is_paused = False
        self._is_left = False
        self._exit_code = 0
        self._pressed = asyncio.Event()

    def run(self, server: ServerConnection) -> None:
        """Runs until q, Ctrl-C or a signal, and restores the terminal; waits for a server that is unreachable."""
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._end)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # also if the parent process ignores SIGINT
        with _keys(), Live(console=Console(), screen=True, auto_refresh=False) as live:
            try:
                server.wait_for(lambda client: self._watch(client, live), math.inf)
            except KeyboardInterrupt:
                if not self._is_left:
                    raise
        if self._exit_code:
            raise SystemExit(self._exit_code)

    def _end(self, number: int, _frame: object) -> None:
        self._exit_code = 128 + number
        self._leave()

    def _leave(self) -> None:
        self._is_left = True
        signal.raise_signal(signal.SIGINT)  # interrupts any wait

    async def _watch(self, client: "Client", live: Live) -> None:
        if sys.stdin.isatty():
            asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._read_keys)
        try:
            while True:
                if not self._is_paused:
                    self._look = await look(client, self._look)
                    self._trend.add(self._look.stats)
                self._show(live)
                await self._rest(live)
        except UnavailableError as error:
            self._show(live, note=f"no connection: {error.message}")
            raise

    async def _rest(self, live: Live) -> None:
        """Waits for the next sample; returns early after a key or a new terminal size."""
        end = asyncio.get_running_loop().time() + self._interval_s
        size = live.console.size
        while asyncio.get_running_loop().time() < end:
            self._pressed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._pressed.wait(), min(_KEY_S, self._interval_s))
            if self._pressed.is_set() or live.console.size != size:
                return

    def _show(self, live: Live, note: str = "") -> None:

        if self._look is None:
            live.update(Text(printable(note)), refresh=True)
            return
        words = note or ("paused; p continues, q quits" if self._is_paused else "")
        frame = TopFrame(self._look, self._trend, self._place)
        live.update(screen(frame, live.console.height, note=printable(words)), refresh=True)

    def _read_keys(self) -> None:
        pressed = os.read(sys.stdin.fileno(), 64)
        if not pressed or b"q" in pressed.lower():
            self._leave()
        if b"p" in pressed.lower():
            self._is_paused = not self._is_paused
        self._pressed.set()


@contextmanager
def _keys() -> Iterator[None]:
    """Reads single keys without echo; restores the terminal afterwards."""
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor, termios.TCSADRAIN)  # keeps keys that were typed before
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
