"""HTTP measured: submits against a bare echo and against gRPC, and what listeners cost."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from holdfast.lab.http_load import MANY, ONE, http_seconds
from holdfast.lab.load import BATCH, Client, rate
from holdfast.lab.measures import Measure, at_least
from holdfast.lab.processes import ended, holdfast_http_server
from holdfast.lab.product import produced, worker_process

_JOBS = "/api/v1/jobs"
_LISTENERS = 200
_JOBS_PRODUCED = 100_000
#: How often yardstick and measured take turns within a run.
_TURNS = 5

Say = Callable[[str], None]


async def submits(runs: int, say: Say) -> list[Measure]:
    """One by one against the echo, and in batches against gRPC; both take turns, so that both have the same machine."""
    single: list[float] = []
    batched: list[float] = []
    with _echo() as echo, holdfast_http_server() as (address, http, _):
        client = Client(address)
        await _ones(echo, http)
        await _batches(client, http)
        for run in range(runs):
            say(f"HTTP submits, run {run + 1} of {runs}")
            single.append(_ratio([await _ones(echo, http) for _ in range(_TURNS)]))
            batched.append(_ratio([await _batches(client, http) for _ in range(_TURNS)]))
    return [
        at_least(
            "durable submits one by one over HTTP, 64 in flight, to a bare Litestar echo of the body", single, 0.7
        ),
        at_least(f"durable submits over HTTP in batches of {BATCH}, to the same over gRPC", batched, 0.5),
    ]


async def _ones(echo: str, http: str) -> tuple[float, float]:
    """Seconds of the echo, and of as many submits."""
    return await http_seconds(echo, "/echo", ONE, 1_280, 64), await http_seconds(http, _JOBS, ONE, 1_280, 64)


async def _batches(client: Client, http: str) -> tuple[float, float]:
    """Seconds over gRPC, and of as many over HTTP."""
    return 20 / await rate(client.submit_batch, 20, 4), await http_seconds(http, _JOBS, MANY, 20, 4)


def _ratio(turns: list[tuple[float, float]]) -> float:
    """How fast the second is, with the first as the measure."""
    return sum(limit for limit, _ in turns) / sum(own for _, own in turns)


async def listeners(runs: int, say: Say) -> list[Measure]:
    """Producer and worker at once, with and without many who listen to all of it."""
    values: list[float] = []
    for run in range(runs):
        say(f"{_LISTENERS} listeners, run {run + 1} of {runs}")
        before = await _end_to_end(0, say)
        with_them = await _end_to_end(_LISTENERS, say)
        values.append(2 * with_them / (before + await _end_to_end(0, say)))
    what = f"end to end with {_LISTENERS} listeners of everything over HTTP, to the same without"
    return [at_least(what, values, 0.9)]


async def _end_to_end(count: int, say: Say) -> float:
    with holdfast_http_server() as (_, http, data), worker_process(str(data)):
        if not count:
            return await produced(str(data), _JOBS_PRODUCED)
        with _listening(http, count, say):
            return await produced(str(data), _JOBS_PRODUCED)


@contextmanager
def _echo() -> Iterator[str]:
    """The address of the bare echo."""
    command = [sys.executable, "-P", "-m", "holdfast.lab.http_echo_server"]
    with ended(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)) as process:
        assert process.stdout is not None
        yield f"127.0.0.1:{process.stdout.readline().strip()}"


@contextmanager
def _listening(http: str, count: int, say: Say) -> Iterator[None]:
    command = [sys.executable, "-P", "-m", "holdfast.lab.http_listeners", http, str(count)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    with ended(process):
        assert process.stdout is not None
        assert process.stdout.readline() == "listening\n"
        yield
        process.terminate()
        say(process.stdout.readline().strip())
