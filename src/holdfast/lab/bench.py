"""`make bench`: every figure is a ratio to a limit measured in the same run, with its spread over several runs.

Everything acknowledged is synced first; the server runs with the product's defaults.
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import uvloop
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from holdfast.lab import http_bench, product
from holdfast.lab.load import BATCH, Client, Echo, Holder, rate
from holdfast.lab.measures import Measure, at_least, at_most
from holdfast.lab.processes import echo_server, holdfast_server, resident_bytes
from holdfast.lab.replaying import count_expired, replay_ratio

_GIB = 1 << 30
PARTS = (
    *("submits", "replay", "one-at-a-time", "round-trips", "embedded"),
    *("throughput", "lost-worker", "starts", "million", "http", "listeners"),
)


async def submits(runs: int, say: Callable[[str], None], share: float = 1) -> list[Measure]:
    """Durable submits, one by one and in batches, against the echo; a share of them is quicker and less exact."""
    calls, batch_calls = max(1, round(share * 6_400)), max(1, round(share * 200))
    single: list[float] = []
    batched: list[float] = []
    with echo_server() as echo_address, holdfast_server() as (address, _, _):
        echo, client = Echo(echo_address), Client(address)
        await rate(echo.echo, 640, 64)
        await rate(client.submit, 640, 64)
        for run in range(runs):
            say(f"submits, run {run + 1} of {runs}")
            before = await rate(echo.echo, calls, 64)
            ones = await rate(client.submit, calls, 64)
            batches = await rate(client.submit_batch, batch_calls, 4) * BATCH
            after = await rate(echo.echo, calls, 64)
            limit = (before + after) / 2
            single.append(ones / limit)
            batched.append(batches / limit)
    return [
        at_least("durable submits one by one (SubmitJob), 64 in flight, to a bare unary echo", single, 0.6),
        at_least(f"durable submits in batches of {BATCH}, in jobs, to the same echo", batched, 20),
    ]


async def replays(runs: int, say: Callable[[str], None], share: float = 1) -> list[Measure]:
    """Recovery from the journal, in jobs, against a bare loop that fills a dict; a share is the same as above."""
    values = []
    for run in range(runs):
        say(f"replay, run {run + 1} of {runs}")
        values.append(await asyncio.to_thread(replay_ratio, round(share * 200_000)))
    return [at_most("replay of a job (created, granted, finished), in rounds of `d[i] = i`", values, 120, "rounds")]


async def million(runs: int, say: Callable[[str], None], jobs: int) -> list[Measure]:
    """A long queue: memory, speed beside a server with a short one, and leases under a flood."""
    submit: list[float] = []
    lease: list[float] = []
    with holdfast_server("--lease-ms", "5000") as (address, pid, data):
        say(f"filling a queue with {jobs:,} jobs")
        long = Client(address)
        await long.fill(jobs)
        resident = resident_bytes(pid) / _GIB
        os.sync()  # what the filling left for the kernel to write would be charged to whoever syncs next
        for run in range(runs):
            say(f"short queue against long queue, run {run + 1} of {runs}")
            with holdfast_server("--lease-ms", "5000") as (short_address, _, _):
                short = Client(short_address)
                await short.fill(1_000)
                few = await _speeds(short, short_address, f"few-{run}")
                many = await _speeds(long, address, f"many-{run}")
            submit.append(many[0] / few[0])
            lease.append(many[1] / few[1])
        say("flood of submits and a walk over all pages, with leases held")
        revoked, held, seen, submitted = await _flood(address)
    expired = count_expired(data)
    say(f"flood: {submitted} submits, {seen} jobs listed, {held} leases held, {revoked} revoked")
    flood = "leases of 5 s that expired under 64 flooding clients and a walk over all pages"
    return [
        at_most(f"resident memory with {jobs:,} queued jobs of 100 bytes", [resident], 1.0, "GiB"),
        at_least(f"submit rate at {jobs:,} queued jobs, to that at 1,000", submit, 0.8),
        at_least(f"lease rate at {jobs:,} queued jobs, to that at 1,000", lease, 0.8),
        at_most(flood, [float(expired)], 0, ""),
    ]


async def _speeds(client: Client, address: str, name: str) -> tuple[float, float]:
    """Batches submitted and leases granted a second; the jobs that were granted are finished afterwards."""
    await rate(client.submit_batch, 8, 4)
    submit = await rate(client.submit_batch, 80, 4)
    async with Holder(address, name) as holder:
        loop = asyncio.get_running_loop()
        start = loop.time()
        for _ in range(40):
            await holder.take(500)
        lease = holder.held / (loop.time() - start)
        await holder.finish()
    return submit, lease


async def _flood(address: str) -> tuple[int, int, int, int]:
    stop = asyncio.Event()
    clients = [Client(address) for _ in range(8)]
    lister = Client(address)
    submitted = 0

    async def submit(client: Client) -> None:
        nonlocal submitted
        while not stop.is_set():
            await client.submit()
            submitted += 1

    async with Holder(address, "holder") as holder:
        await holder.take(200)
        tasks = [asyncio.create_task(submit(clients[lane % 8])) for lane in range(64)]
        beating = asyncio.create_task(holder.beat(stop, 1.0))
        seen = await lister.walk(stop)
        stop.set()
        await asyncio.gather(*tasks, beating)
    return holder.revoked, holder.held, seen, submitted


def report(measures: list[Measure], console: Console) -> None:
    """The table, then the same as JSON on one line."""
    table = Table(title="Holdfast bench: ratios within one run", show_lines=False)
    for column in ("measure", "reach", "median", "spread", ""):
        table.add_column(column, justify="left" if column == "measure" else "right")
    for measure in measures:
        spread = f"{min(measure.values):.2f} – {max(measure.values):.2f}"
        median = f"{measure.median:.2f} {measure.unit}".strip()
        table.add_row(
            escape(measure.name), measure.reach, median, spread, "reached" if measure.is_reached else "MISSED"
        )
    console.print(table)


def as_json(measures: list[Measure]) -> str:
    """The measures for programs."""
    rows = [msgspec.structs.asdict(measure) | {"median": measure.median} for measure in measures]
    return json.dumps({"measures": rows}, ensure_ascii=False)


async def run(arguments: argparse.Namespace, say: Callable[[str], None]) -> list[Measure]:
    """The chosen parts, in order."""
    parts: dict[str, Callable[[], Awaitable[list[Measure]]]] = {
        "submits": lambda: submits(arguments.runs, say),
        "replay": lambda: replays(arguments.runs, say),
        "one-at-a-time": lambda: product.one_at_a_time(arguments.runs, say),
        "round-trips": lambda: product.round_trips(arguments.runs, say),
        "embedded": lambda: product.embedded(arguments.runs, say),
        "throughput": lambda: product.throughput(arguments.runs, say),
        "lost-worker": lambda: product.lost_worker(arguments.runs, say),
        "starts": lambda: product.starts(arguments.runs, say),
        "million": lambda: million(arguments.runs, say, arguments.jobs),
        "http": lambda: http_bench.submits(arguments.runs, say),
        "listeners": lambda: http_bench.listeners(arguments.runs, say),
    }
    measures: list[Measure] = []
    for name in arguments.only or parts:
        measures += await parts[name]()
    return measures


def main() -> int:
    """Prints a table and JSON; exits with 1 if something was missed."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="runs of each measure (at least 3)")
    parser.add_argument("--jobs", type=int, default=1_000_000, help="jobs in the long queue")
    parser.add_argument("--only", nargs="*", choices=PARTS, help="parts to run")
    parser.add_argument("--json", type=Path, help="also write the JSON to this file")
    arguments = parser.parse_args()
    console = Console(stderr=True)
    measures = uvloop.run(run(arguments, lambda text: console.print(f"[dim]{text}[/dim]")))
    report(measures, Console(width=150))
    print(as_json(measures))
    if arguments.json:
        arguments.json.write_text(as_json(measures) + "\n")
    return 0 if all(measure.is_reached for measure in measures) else 1


if __name__ == "__main__":
    sys.exit(main())
