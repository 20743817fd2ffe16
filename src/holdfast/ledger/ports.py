"""The ports of the coordinator: clock, scheduler, sync thread and storage."""

from collections.abc import Callable
from typing import Protocol

from holdfast.clock import Uptime


class Clock(Protocol):
    """Three times, in whole milliseconds."""

    def wall_ms(self) -> int:
        """Returns the Unix time (UTC); it may jump."""
        ...

    def steady_ms(self) -> int:
        """Returns a time that only goes forward and never jumps, from an arbitrary start."""
        ...

    def uptime(self) -> Uptime | None:
        """Returns how long the machine has been up; None if it is unknown."""
        ...


class Timer(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Cancels the call, unless it has been made."""
        ...


class Scheduler(Protocol):
    """Makes calls on the thread that owns the coordinator."""

    def soon(self, call: Callable[[], None]) -> None:
        """Makes a call after the current one, and after input that has already arrived."""
        ...

    def later(self, delay_ms: int, call: Callable[[], None]) -> Timer:
        """Makes a call when at least `delay_ms` have passed."""
        ...


class SyncThread(Protocol):
    """Runs blocking work, one piece at a time, outside of the coordinator's thread."""

    def run(self, work: Callable[[], int], done: Callable[[int | BaseException], None], *, is_lone: bool) -> None:
        """Runs `work`, and calls `done` on the coordinator's thread with its result or exception.

        `is_lone` means that only one caller waits: then `run` may wait a moment for the work, and call `done` before it
        returns.
        """
        ...


class Storage(Protocol):
    """The part of the journal that the coordinator uses while it serves."""

    @property
    def epoch(self) -> int:
        """The epoch of this opening of the journal."""
        ...

    @property
    def end_position(self) -> int:
        """The last durable position."""
        ...

    def reserve(self, size: int, *, spare: int = 0) -> bool:
        """Reserves `size` bytes for a later write and leaves `spare` free; False, without any change, if it cannot."""
        ...

    def write(self, body: bytes, count: int, digest: int, now_ms: int | None = None) -> int:
        """Makes one frame durable and returns its last position; any failure is final. `now_ms` dates new segments."""
        ...
