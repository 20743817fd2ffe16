"""`make bench`: every figure is a ratio to a limit measured in the same run, with its spread over several runs.

Everything acknowledged is synced first; the server runs with the product's defaults.
"""

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import uvloop

from holdfast_lab.bench import http_throughput, sdk_throughput, weight
from holdfast_lab.bench.grpc_load import BATCH, GrpcLoadClient, LeaseHolder
from holdfast_lab.bench.replay import count_expired, replay_ratio
from holdfast_lab.measure.echo import Baseline, Echo
from holdfast_lab.measure.measures import Measure, at_least, at_most, conclude, progress
from holdfast_lab.measure.process_tree import resident_bytes
from holdfast_lab.measure.processes import echo_server, holdfast_server
from holdfast_lab.measure.rounds import Say, announced
from holdfast_lab.measure.timing import rate

_GIB = 1 << 30
_SHORT_LEASES = ("--lease-ms", "5000")


async def submits(runs: int, say: Say, share: float = 1) -> list[Measure]:
    """Durable submits, one by one and in batches, against the echo; a smaller share of the work is less exact."""
    calls, batch_calls = max(64, round(share * 6_400)), max(4, round(share * 200))
    single: list[float] = []
    batched: list[float] = []
    with echo_server() as echo_address, holdfast_server() as server:
        baseline = Baseline(partial(Echo(echo_address).measure, calls))
        client = GrpcLoadClient(server.grpc)
        await rate(client.submit, 640, 64)
        for _ in announced("submits", runs, say):
            await baseline.begin()
            ones = await rate(client.submit, calls, 64)
            batches = await rate(client.submit_batch, batch_calls, 4) * BATCH
            limit = (await baseline.end()).rate
            single.append(ones / limit)
            batched.append(batches / limit)
    return [
        at_least("durable submits one by one (SubmitJob), 64 in flight, to a bare unary echo", single, 0.7),
        at_least(f"durable submits in batches of {BATCH}, in jobs, to the same echo", batched, 20),
    ]


async def replays(runs: int, say: Say, share: float = 1) -> list[Measure]:
    """Recovery from the journal, in jobs, against a bare loop that fills a dict; `share` is the same as above."""
    jobs = round(share * 200_000)
    values = [await asyncio.to_thread(replay_ratio, jobs) for _ in announced("replay", runs, say)]
    return [at_most("replay of a job (created, granted, finished), in rounds of `d[i] = i`", values, 120, "rounds")]


async def million(runs: int, say: Say, jobs: int) -> list[Measure]:
    """A long queue: memory, speed beside a server with a short one, and leases under a flood."""
    submit: list[float] = []
    lease: list[float] = []
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        with holdfast_server(*_SHORT_LEASES, folder=Path(folder)) as server:
            say(f"filling a queue with {jobs:,} jobs")
            long = GrpcLoadClient(server.grpc)
            await long.fill(jobs)
            resident = resident_bytes(server.pid) / _GIB
            os.sync()  # otherwise the next sync would also write the dirty pages of the filling
            for run in announced("short queue against long queue", runs, say):
                with holdfast_server(*_SHORT_LEASES) as other:
                    short = GrpcLoadClient(other.grpc)
                    await short.fill(1_000)
                    few = await _speeds(short, other.grpc, f"few-{run}")
                    many = await _speeds(long, server.grpc, f"many-{run}")
                submit.append(many[0] / few[0])
                lease.append(many[1] / few[1])
            say("flood of submits and a walk over all pages, with leases held")
            revoked, held, seen, submitted = await _flood(server.grpc)
        expired = count_expired(server.data)
    say(f"flood: {submitted} submits, {seen} jobs listed, {held} leases held, {revoked} revoked")
    flood = "leases of 5 s that expired under 64 flooding clients and a walk over all pages"
    return [
        at_most(f"resident memory with {jobs:,} queued jobs of 100 bytes", [resident], 1.0, "GiB"),
        at_least(f"submit rate at {jobs:,} queued jobs, to that at 1,000", submit, 0.8),
        at_least(f"lease rate at {jobs:,} queued jobs, to that at 1,000", lease, 0.8),
        at_most(flood, [float(expired)], 0, ""),
    ]


async def _speeds(client: GrpcLoadClient, address: str, name: str) -> tuple[float, float]:
    """Batches submitted and leases granted per second; granted jobs are finished afterwards."""
    await rate(client.submit_batch, 8, 4)
    submit = await rate(client.submit_batch, 80, 4)
    async with LeaseHolder(address, name) as holder:
        loop = asyncio.get_running_loop()
        start = loop.time()
        for _ in range(40):
            await holder.take(500)
        lease = holder.held / (loop.time() - start)
        await holder.finish()
    return submit, lease


async def _flood(address: str) -> tuple[int, int, int, int]:
    stop = asyncio.Event()
    clients = [GrpcLoadClient(address) for _ in range(8)]
    lister = GrpcLoadClient(address)
    submitted = 0

    async def submit(client: GrpcLoadClient) -> None:
        nonlocal submitted
        while not stop.is_set():
            await client.submit()
            submitted += 1

    async with LeaseHolder(address, "holder") as holder:
        await holder.take(200)
        tasks = [asyncio.create_task(submit(clients[lane % 8])) for lane in range(64)]
        beating = asyncio.create_task(holder.beat(stop, 1.0))
        seen = await lister.walk(stop)
        stop.set()
        await asyncio.gather(*tasks, beating)
    return holder.revoked, holder.held, seen, submitted


PARTS: dict[str, Callable[..., Awaitable[list[Measure]]]] = {
    "submits": submits,
    "replay": replays,
    "one-at-a-time": sdk_throughput.one_at_a_time,
    "round-trips": sdk_throughput.round_trips,
    "embedded": sdk_throughput.embedded,
    "throughput": sdk_throughput.throughput,
    "lost-worker": sdk_throughput.lost_worker,
    "starts": sdk_throughput.starts,
    "million": million,
    "weight": weight.long_queue,
    "crowd": weight.crowd,
    "idle-connections": weight.idle_connections,
    "http": http_throughput.submits,
    "listeners": http_throughput.listeners,
}


async def run(names: list[str], runs: int, jobs: int, say: Say) -> list[Measure]:
    """The chosen parts, in order."""
    sizes = {"million": (jobs,), "weight": (jobs,)}
    return [measure for name in names for measure in await PARTS[name](runs, say, *sizes.get(name, ()))]


def main() -> int:
    """Print a table and JSON; the exit status is 1 if a target was missed."""
    options = argparse.ArgumentParser(prog="make bench", description=__doc__)
    options.add_argument("--runs", type=int, default=5, help="runs of each measure (at least 3)")
    options.add_argument("--json", type=Path, help="also write the JSON to this file")
    options.add_argument("--jobs", type=int, default=1_000_000, help="jobs in the long queue")
    options.add_argument("--only", nargs="*", choices=PARTS, help="parts to run")
    given = options.parse_args()
    measures = uvloop.run(run(given.only or list(PARTS), given.runs, given.jobs, progress()))
    return conclude(measures, given.json)


if __name__ == "__main__":
    sys.exit(main())
