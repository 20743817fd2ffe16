"""How long one input may take: processor time of this process, so that a busy machine makes nothing late."""

import signal
import threading
from collections.abc import Callable
from types import FrameType

INPUT_S = 5.0


class TooSlowError(AssertionError):
    """One input took more than its budget."""


def within_budget(fuzz: Callable[[bytes], None], data: bytes) -> None:
    """Tries one input, and raises what it raises; outside the main thread nobody looks at the clock."""
    if threading.current_thread() is not threading.main_thread():
        fuzz(data)
        return
    before = signal.signal(signal.SIGVTALRM, _too_slow)
    signal.setitimer(signal.ITIMER_VIRTUAL, INPUT_S)
    try:
        fuzz(data)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _too_slow(_number: int, _frame: FrameType | None) -> None:
    raise TooSlowError(f"an input took more than {INPUT_S} seconds of processor time")
