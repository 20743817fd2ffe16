"""The jobs of the demo, as a user would write them; its workers are started with `-A holdfast_lab.demo.jobs:app`."""

import asyncio
import os
import time
from pathlib import Path

from holdfast import Backoff, Holdfast, current
from holdfast_lab.demo import DATA_VARIABLE

# Progress is sent with heartbeats; the default, one per second, is too slow for a display.
app = Holdfast(os.environ.get(DATA_VARIABLE, "memory://"), settings={"heartbeat_ms": 250})


@app.job()
def thumbnail(name: str, width: int) -> str:
    """Run an ordinary function, in a thread of a worker."""
    time.sleep(0.3)
    return f"{name}@{width}"


@app.job()
async def fetch(url: str) -> int:
    """Run a coroutine; many of them share a worker's event loop."""
    await asyncio.sleep(0.4)
    return len(url)


@app.job(isolation="process")
def primes(below: int) -> int:
    """Use the processor, in a process of its own, which can be killed."""
    sieve = bytearray([1]) * below
    for number in range(2, int(below**0.5) + 1):
        if sieve[number]:
            sieve[number * number :: number] = bytes(len(range(number * number, below, number)))
    return sum(sieve) - 2


@app.job(max_attempts=5, backoff=Backoff.fixed(0.5))
def flaky(tally: str, answers_at: int) -> int:
    """Call a service that fails at first; each call is a line in the file `tally`."""
    with Path(tally).open("a+") as file:
        file.write("called\n")
        file.seek(0)
        calls = len(file.readlines())
    if calls < answers_at:
        raise ConnectionError(f"call {calls}: no server answers")
    return calls


@app.job(max_attempts=3, no_retry=(ZeroDivisionError,))
def invoice(total: int, items: int) -> int:
    """Fail at once without items; a retry would not help."""
    return total // items


@app.job(queue="nightly")
def report(day: str) -> str:
    """Wait in a queue that the demo has paused."""
    return f"report of {day}"


@app.job(priority=9)
def backup(steps: int) -> str:
    """Take some time and report progress; the demo kills the first worker half-way."""
    job = current()
    for step in range(steps):
        job.progress(step / steps, f"step {step} of {steps}")
        time.sleep(0.1)
    return f"{steps} steps, attempt {job.attempt}"
