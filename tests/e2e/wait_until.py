"""Waiting for events: the only module of these tests that reads a clock."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: Long enough for a loaded machine; only a failing test ever waits this long.
DEADLINE_S = 60.0
_PAUSE_S = 0.01


def eventually(read: Callable[[], T], is_right: Callable[[T], object] = bool, what: str = "") -> T:
    """Returns the value of `read` once it is right; fails with the last value after the deadline."""
    end = time.monotonic() + DEADLINE_S
    while True:
        value = read()
        if is_right(value):
            return value
        if time.monotonic() > end:
            raise AssertionError(f"{what or 'the expected value'} did not appear in time; last seen: {value!r}")
        pause()


def pause(seconds: float = _PAUSE_S) -> None:
    """Sleeps, so that other processes can run; no test may depend on the duration."""
    time.sleep(seconds)
