"""Job types that every worker knows.

`echo` returns its payload. `sim` pretends to work: it sleeps and returns bytes. Labels make it misbehave, for tests:
`sim.fail=REASON` fails (only the first n attempts with `sim.fail_attempts=n`), `sim.crash=1` kills the worker process.
"""

import asyncio
import os
import re
import signal

from holdfast import limits
from holdfast.ports import Assignment
from holdfast.worker.handlers import AttemptFailedError, Handler, Mode, output_too_large


async def echo(assignment: Assignment) -> bytes:
    """Returns the payload unchanged."""
    return assignment.payload


async def sim(assignment: Assignment) -> bytes:
    """Sleeps for the job's `work_duration_ms`, and returns `payload_size_bytes` bytes."""
    labels = assignment.labels
    if assignment.work_duration_ms:
        await asyncio.sleep(assignment.work_duration_ms / 1_000)
    if labels.get("sim.crash") == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    if "sim.fail" in labels and assignment.attempt <= _failing_attempts(labels):
        raise AttemptFailedError(labels["sim.fail"] or "SIMULATED")
    if assignment.payload_size_bytes > limits.OUTPUT_BYTES_MAX:
        # Refused before the output is allocated: the submitter chooses the size, which may be gigabytes.
        raise output_too_large(assignment.payload_size_bytes)
    return b"." * assignment.payload_size_bytes


def _failing_attempts(labels: dict[str, str]) -> float:
    text = labels.get("sim.fail_attempts", "")
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else float("inf")


BUILTIN: dict[str, Handler] = {"echo": Handler(echo, Mode.ASYNC), "sim": Handler(sim, Mode.ASYNC)}
