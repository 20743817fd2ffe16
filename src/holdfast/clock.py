"""The clocks of this machine."""

import time


class SystemClock:
    """Wall time and steady time in whole milliseconds."""

    __slots__ = ()

    def wall_ms(self) -> int:
        """UTC since 1970; jumps when somebody sets it."""
        return time.time_ns() // 1_000_000

    def steady_ms(self) -> int:
        """Since boot; keeps counting while this process is stopped."""
        return time.monotonic_ns() // 1_000_000
