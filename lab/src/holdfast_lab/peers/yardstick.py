"""The yardstick of every figure: a bare grpc.aio echo, measured before and after each trial."""

import argparse
import statistics
import sys

import msgspec
import uvloop

from holdfast_lab.bench.grpc_load import Echo
from holdfast_lab.measure.processes import module, output_of
from holdfast_lab.measure.timing import durations, rate

LANES = 64
CALLS = 6_400
_ROUND_TRIPS_MIN = 10


class Yardstick(msgspec.Struct, frozen=True):
    """Calls a second with 64 in flight, and the median of one round trip with nothing else in flight."""

    rate: float
    round_trip_ms: float

    def mean_with(self, other: "Yardstick") -> "Yardstick":
        """The mean of two measurements."""
        return Yardstick((self.rate + other.rate) / 2, (self.round_trip_ms + other.round_trip_ms) / 2)


async def take(address: str, calls: int) -> Yardstick:
    """Measure the echo in a process of its own: a process that has used gRPC logs warnings when it forks."""
    command = module("holdfast_lab.peers.yardstick", address, "--calls", str(calls))
    return msgspec.json.decode(await output_of(command), type=Yardstick)


async def measure(address: str, calls: int) -> Yardstick:
    """Measure the echo after a warm-up."""
    echo = Echo(address)
    await rate(echo.echo, max(LANES, calls // 10), LANES)
    in_flight = await rate(echo.echo, max(LANES, calls), LANES)
    times = await durations(echo.echo, max(_ROUND_TRIPS_MIN, calls // 12))
    await echo.channel.close(None)
    return Yardstick(in_flight, statistics.median(times) * 1_000)


def main() -> int:
    """Print the yardstick as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("--calls", type=int, default=CALLS)
    arguments = parser.parse_args()
    print(msgspec.json.encode(uvloop.run(measure(arguments.address, arguments.calls))).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
