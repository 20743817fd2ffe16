"""Waiting for events: the one place where these tests look at a clock."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: Long enough for a loaded machine; only a failing test ever waits this long.
DEADLINE_S = 60.0
_PAUSE_S = 0.01


def eventually(read: Callable[[], T], is_right: Callable[[T], object] = bool, what: str = "") -> T:
    """What `read` gives once it is right; fails with the last value when that never happens."""
    end = time.monotonic() + DEADLINE_S
    while True:
        value = read()
        if is_right(value):
            return value
        if time.monotonic() > end:
            raise AssertionError(f"{what or 'what was waited for'} never came; last seen: {value!r}")
        pause()


def pause(seconds: float = _PAUSE_S) -> None:
    """Lets the others run; nothing may depend on how long it takes."""
    time.sleep(seconds)
