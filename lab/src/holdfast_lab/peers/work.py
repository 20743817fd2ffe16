"""The functions of the jobs, the same for every system."""

import asyncio
import os
import time

from holdfast_lab.peers import trial_environment

RECORDS = "records"


def nothing() -> int:
    """Do nothing and return a result that every system stores; some do not store None."""
    return 1


def pause(index: int, seconds: float) -> int:
    """Sleep, and record the start and the end."""
    record("start", index)
    time.sleep(seconds)
    record("end", index)
    return index


async def pause_async(index: int, seconds: float) -> int:
    """Do the same as a coroutine, for systems that run those."""
    record("start", index)
    await asyncio.sleep(seconds)
    record("end", index)
    return index


def record(what: str, index: int) -> None:
    """Append one line: atomic among processes, and kept if the process is killed right after."""
    line = f"{what} {index} {os.getsid(0)}\n".encode()
    file = os.open(trial_environment.folder() / RECORDS, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line)
    finally:
        os.close(file)
