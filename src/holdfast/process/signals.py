"""TERM and INT as calls on the event loop."""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Signals that request a process to end.
STOPS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def on_stop(stop: Callable[[], None]) -> Iterator[None]:
    """Calls `stop` at every TERM or INT inside the block; in other threads than the main one it does nothing."""
    loop = asyncio.get_running_loop()
    numbers = STOPS if threading.current_thread() is threading.main_thread() else ()
    for number in numbers:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
