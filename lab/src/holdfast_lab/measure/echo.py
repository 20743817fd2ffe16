"""The yardstick: a bare grpc.aio unary echo of 100 bytes.

`python -m holdfast_lab.measure.echo` serves it on a free port; `… ADDRESS CALLS` measures it and prints JSON.
"""

import asyncio
import statistics
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import msgspec
import uvloop

from holdfast.topologies.microservices.grpc_channel import open_channel
from holdfast_lab.measure.processes import module, output_of
from holdfast_lab.measure.timing import durations, rate

PAYLOAD = b"x" * 100
LANES = 64
CALLS = 6_400
_WARM_CALLS = 640
_SERVICE = "holdfast.lab.Echo"
_ROUND_TRIPS_MIN = 10


class Yardstick(msgspec.Struct, frozen=True):
    """Calls a second with 64 in flight, and the median of one round trip with nothing else in flight."""

    rate: float
    round_trip_ms: float


class Echo:
    """Calls to the echo."""

    def __init__(self, address: str) -> None:
        self.channel = open_channel(address)
        self._call: Any = self.channel.unary_unary(f"/{_SERVICE}/Echo", None, None)

    async def echo(self) -> None:
        """One round trip of 100 bytes."""
        await self._call(PAYLOAD)

    async def measure(self, calls: int = CALLS) -> Yardstick:
        """Measure the echo after a warm-up."""
        await rate(self.echo, _WARM_CALLS, LANES)
        in_flight = await rate(self.echo, max(LANES, calls), LANES)
        times = await durations(self.echo, max(_ROUND_TRIPS_MIN, calls // 12))
        return Yardstick(in_flight, statistics.median(times) * 1_000)


class Baseline:
    """The mean of the yardstick before and after a measurement; `end` is also the beginning of the next one."""

    def __init__(self, measure: Callable[[], Awaitable[Yardstick]]) -> None:
        self._measure = measure

    async def begin(self) -> None:
        """Measure the yardstick."""
        self._before = await self._measure()

    async def end(self) -> Yardstick:
        """Measure the yardstick again; returns the mean."""
        before, self._before = self._before, await self._measure()
        rates, times = before.rate + self._before.rate, before.round_trip_ms + self._before.round_trip_ms
        return Yardstick(rates / 2, times / 2)


async def measure_apart(address: str, calls: int) -> Yardstick:
    """Measure the echo in a process of its own: a process that has used gRPC logs warnings when it forks."""
    command = module("holdfast_lab.measure.echo", address, str(calls))
    return msgspec.json.decode(await output_of(command), type=Yardstick)


async def _serve() -> None:
    """Print the port and serve until killed."""

    async def echo(request: bytes, _context: object) -> bytes:
        return request

    server = grpc.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(echo)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, {"Echo": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await asyncio.Event().wait()


async def _print(address: str, calls: str) -> None:
    print(msgspec.json.encode(await Echo(address).measure(int(calls))).decode())


if __name__ == "__main__":
    uvloop.run(_print(*sys.argv[1:]) if sys.argv[1:] else _serve())
