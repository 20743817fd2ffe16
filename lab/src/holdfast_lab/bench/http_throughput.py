"""HTTP measured: submits against a bare echo and against gRPC, and the cost of subscribers to events."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from holdfast_lab.bench.grpc_load import BATCH, GrpcLoadClient
from holdfast_lab.bench.http_load import MANY, ONE, http_seconds
from holdfast_lab.bench.sdk_throughput import loaded
from holdfast_lab.measure.measures import Measure, at_least
from holdfast_lab.measure.processes import child, echo_server, holdfast_server, module, next_line, noop_worker
from holdfast_lab.measure.rounds import Say, announced
from holdfast_lab.measure.timing import rate

_JOBS = "/api/v1/jobs"
_LISTENERS = 200
_JOBS_PRODUCED = 100_000
#: How often yardstick and server take turns within a run.
_TURNS = 5


async def submits(runs: int, say: Say) -> list[Measure]:
    """Single submits against the echo, and batches against gRPC; both sides take turns."""
    single: list[float] = []
    batched: list[float] = []
    with echo_server("bench.http_echo_server") as echo, holdfast_server() as server:
        client = GrpcLoadClient(server.grpc)
        await _ones(echo, server.http)
        await _batches(client, server.http)
        for _ in announced("HTTP submits", runs, say):
            single.append(_ratio([await _ones(echo, server.http) for _ in range(_TURNS)]))
            batched.append(_ratio([await _batches(client, server.http) for _ in range(_TURNS)]))
    return [
        at_least(
            "durable submits one by one over HTTP, 64 in flight, to a bare Litestar echo of the body", single, 0.7
        ),
        at_least(f"durable submits over HTTP in batches of {BATCH}, to the same over gRPC", batched, 0.5),
    ]


async def _ones(echo: str, http: str) -> tuple[float, float]:
    """Seconds of the echo, and of as many submits."""
    return await http_seconds(echo, "/echo", ONE, 1_280, 64), await http_seconds(http, _JOBS, ONE, 1_280, 64)


async def _batches(client: GrpcLoadClient, http: str) -> tuple[float, float]:
    """Seconds over gRPC, and of as many batches over HTTP."""
    return 20 / await rate(client.submit_batch, 20, 4), await http_seconds(http, _JOBS, MANY, 20, 4)


def _ratio(turns: list[tuple[float, float]]) -> float:
    """The speed of the second side, as a multiple of the first."""
    return sum(limit for limit, _ in turns) / sum(own for _, own in turns)


async def listeners(runs: int, say: Say) -> list[Measure]:
    """Producer and worker at once, with and without many subscribers of all events."""
    values: list[float] = []
    for _ in announced(f"{_LISTENERS} listeners", runs, say):
        before, between, after = [await end_to_end(_JOBS_PRODUCED, count, say) for count in (0, _LISTENERS, 0)]
        values.append(2 * between / (before + after))
    what = f"end to end with {_LISTENERS} listeners of everything over HTTP, to the same without"
    return [at_least(what, values, 0.9)]


async def end_to_end(jobs: int, count: int, say: Say, program: str = "holdfast") -> float:
    """Jobs per second, submitted and done, with this many subscribers."""
    with ExitStack() as stack:
        server = stack.enter_context(holdfast_server(program=program))
        stack.enter_context(noop_worker(str(server.data)))
        if count:
            stack.enter_context(_listening(server.http, count, say))
        return float((await loaded(str(server.data), "produce", jobs))["jobs"])


@contextmanager
def _listening(http: str, count: int, say: Say) -> Iterator[subprocess.Popen[str]]:
    """Subscribers of all events, in a process of their own."""
    with child(module("holdfast_lab.bench.http_listeners", http, str(count))) as process:
        assert next_line(process) == "listening"
        yield process
        process.terminate()
        say(next_line(process))
