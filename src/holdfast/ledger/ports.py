"""What the coordinator needs of the world around it."""

from collections.abc import Callable
from typing import Protocol

from holdfast.clock import Uptime


class Clock(Protocol):
    """Three times, in whole milliseconds."""

    def wall_ms(self) -> int:
        """The time of day, UTC since 1970; it may jump."""
        ...

    def steady_ms(self) -> int:
        """A time that only goes forward and never jumps, from an arbitrary start."""
        ...

    def uptime(self) -> Uptime | None:
        """How long the machine has been up; None where that is not known."""
        ...


class Timer(Protocol):
    """A call that is due later."""

    def cancel(self) -> None:
        """The call is not made, if it was not made yet."""
        ...


class Scheduler(Protocol):
    """Makes calls on the one thread that owns the coordinator."""

    def soon(self, call: Callable[[], None]) -> None:
        """After what is running now, and after input that has already arrived."""
        ...

    def later(self, delay_ms: int, call: Callable[[], None]) -> Timer:
        """Not before `delay_ms` have passed."""
        ...


class SyncThread(Protocol):
    """Does one blocking piece of work at a time beside the coordinator."""

    def run(self, work: Callable[[], int], done: Callable[[int | BaseException], None], *, is_lone: bool) -> None:
        """Calls `done` on the coordinator's thread with what `work` returned or raised.

        `is_lone` says that one caller alone waits: then `run` may wait a moment for the work, and call `done` before it
        returns.
        """
        ...


class Storage(Protocol):
    """The part of the journal that the loop uses while it serves."""

    @property
    def epoch(self) -> int:
        """The number of this opening."""
        ...

    @property
    def end_position(self) -> int:
        """The last durable position."""
        ...

    def reserve(self, size: int, *, spare: int = 0) -> bool:
        """Grants bytes that a later write can rely on, or says no and changes nothing."""
        ...

    def write(self, body: bytes, count: int, digest: int, now_ms: int | None = None) -> int:
        """Makes one frame durable and returns its last position; any failure is final. `now_ms` dates new segments."""
        ...
