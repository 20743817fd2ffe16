"""TERM and INT as calls on the event loop."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: What asks a process to end.
STOPS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def on_stop(stop: Callable[[], None]) -> Iterator[None]:
    """Calls `stop` at every TERM or INT inside the block."""
    loop = asyncio.get_running_loop()
    for number in STOPS:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in STOPS:
            loop.remove_signal_handler(number)
