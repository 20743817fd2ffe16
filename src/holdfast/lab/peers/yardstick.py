"""The yardstick of every figure: one bare grpc.aio echo, measured around each trial by a process of its own."""

import argparse
import asyncio
import statistics
import sys
import time

import msgspec
import uvloop

from holdfast.errors import UnavailableError
from holdfast.lab.load import Echo, rate

LANES = 64
CALLS = 6_400
_ROUND_TRIPS_MIN = 10


class Yardstick(msgspec.Struct, frozen=True):
    """Calls a second with 64 in flight, and the median of one round trip with nothing else in flight."""

    rate: float
    round_trip_ms: float

    def mean_with(self, other: "Yardstick") -> "Yardstick":
        """What held between two measurements."""
        return Yardstick((self.rate + other.rate) / 2, (self.round_trip_ms + other.round_trip_ms) / 2)


async def take(address: str, calls: int) -> Yardstick:
    """Measures the echo there, in a process of its own: one that has used gRPC is noisy when it starts others."""
    command = [sys.executable, "-P", "-m", "holdfast.lab.peers.yardstick", address, "--calls", str(calls)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    printed, _ = await process.communicate()
    if process.returncode:
        raise UnavailableError(f"the echo could not be measured: its client left with {process.returncode}")
    return msgspec.json.decode(printed, type=Yardstick)


async def measure(address: str, calls: int) -> Yardstick:
    """Measures the echo there, warm."""
    echo = Echo(address)
    await rate(echo.echo, max(LANES, calls // 10), LANES)
    in_flight = await rate(echo.echo, max(LANES, calls), LANES)
    times = []
    for _ in range(max(_ROUND_TRIPS_MIN, calls // 12)):
        start = time.perf_counter()
        await echo.echo()
        times.append(time.perf_counter() - start)
    await echo.channel.close(None)
    return Yardstick(in_flight, statistics.median(times) * 1_000)


def main() -> int:
    """Prints the yardstick as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("--calls", type=int, default=CALLS)
    arguments = parser.parse_args()
    print(msgspec.json.encode(uvloop.run(measure(arguments.address, arguments.calls))).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
