"""What the jobs do, the same for every system."""

import asyncio
import os
import time

from holdfast.lab.peers import place

RECORDS = "records"


def nothing() -> int:
    """A no-op whose result can be stored; some peers store no None."""
    return 1


def pause(index: int, seconds: float) -> int:
    """Takes its time, and leaves a record of its start and of its end."""
    record("start", index)
    time.sleep(seconds)
    record("end", index)
    return index


async def pause_async(index: int, seconds: float) -> int:
    """The same for peers whose functions are coroutines."""
    record("start", index)
    await asyncio.sleep(seconds)
    record("end", index)
    return index


def record(what: str, index: int) -> None:
    """One appended line: atomic among processes, and there even if the process is killed right after."""
    line = f"{what} {index} {os.getsid(0)}\n".encode()
    file = os.open(place.folder() / RECORDS, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line)
    finally:
        os.close(file)
