"""The time limit of one input, in processor time, so that other load of the machine does not count."""

import signal
import threading
from collections.abc import Callable
from types import FrameType

INPUT_S = 5.0


class TooSlowError(AssertionError):
    """One input took more than its budget."""


def within_budget(fuzz: Callable[[bytes], None], data: bytes) -> None:
    """Try one input; outside the main thread there is no limit."""
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
