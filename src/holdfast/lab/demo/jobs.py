"""The jobs of the demo, as a user would write them; its workers are started with `-A holdfast.lab.demo.jobs:app`."""

import asyncio
import os
import time
from pathlib import Path

from holdfast import Backoff, Holdfast, current
from holdfast.lab.demo import DATA_VARIABLE

# A heartbeat a second is the default; progress travels with it, and here somebody watches.
app = Holdfast(os.environ.get(DATA_VARIABLE, "memory://"), settings={"heartbeat_ms": 250})


@app.job()
def thumbnail(name: str, width: int) -> str:
    """An ordinary function; it runs in a thread of a worker."""
    time.sleep(0.3)
    return f"{name}@{width}"


@app.job()
async def fetch(url: str) -> int:
    """A coroutine; many of them share a worker's event loop."""
    await asyncio.sleep(0.4)
    return len(url)


@app.job(isolation="process")
def primes(below: int) -> int:
    """Work for a processor; it runs in a process of its own, which could be killed."""
    sieve = bytearray([1]) * below
    for number in range(2, int(below**0.5) + 1):
        if sieve[number]:
            sieve[number * number :: number] = bytes(len(range(number * number, below, number)))
    return sum(sieve) - 2


@app.job(max_attempts=5, backoff=Backoff.fixed(0.5))
def flaky(tally: str, answers_at: int) -> int:
    """Calls somebody who answers only at a later call; each call is a line in the file `tally`."""
    with Path(tally).open("a+") as file:
        file.write("called\n")
        file.seek(0)
        calls = len(file.readlines())
    if calls < answers_at:
        raise ConnectionError(f"call {calls}: nobody answers")
    return calls


@app.job(max_attempts=3, no_retry=(ZeroDivisionError,))
def invoice(total: int, items: int) -> int:
    """Cannot succeed without items, and says so at once."""
    return total // items


@app.job(queue="nightly")
def report(day: str) -> str:
    """Waits in a queue that the demo has paused."""
    return f"report of {day}"


@app.job(priority=9)
def backup(steps: int) -> str:
    """Takes its time, and tells how far it got; its first worker is killed in the middle."""
    job = current()
    for step in range(steps):
        job.progress(step / steps, f"step {step} of {steps}")
        time.sleep(0.1)
    return f"{steps} steps, attempt {job.attempt}"
