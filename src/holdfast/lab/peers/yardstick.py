"""The yardstick of every figure: one bare grpc.aio echo, measured around each trial."""

import statistics
import time

import msgspec

from holdfast.lab.load import Echo, rate

LANES = 64
_CALLS = 6_400
_ROUND_TRIPS = 500


class Yardstick(msgspec.Struct, frozen=True):
    """Calls a second with 64 in flight, and the median of one round trip with nothing else in flight."""

    rate: float
    round_trip_ms: float

    def mean_with(self, other: "Yardstick") -> "Yardstick":
        """What held between two measurements."""
        return Yardstick((self.rate + other.rate) / 2, (self.round_trip_ms + other.round_trip_ms) / 2)


async def take(echo: Echo, *, scale: float = 1.0) -> Yardstick:
    """Measures the echo; a smaller scale makes fewer calls."""
    calls = await rate(echo.echo, max(LANES, int(_CALLS * scale)), LANES)
    times = []
    for _ in range(max(10, int(_ROUND_TRIPS * scale))):
        start = time.perf_counter()
        await echo.echo()
        times.append(time.perf_counter() - start)
    return Yardstick(calls, statistics.median(times) * 1_000)
