"""The functions of the jobs, the same for every system."""

import asyncio
import time

from holdfast_lab.peers.records import write_record


def nothing() -> int:
    """Do nothing and return a result that every system stores; some do not store None."""
    return 1


#: The argument of the no-op in the comparison over PostgreSQL.
ARGUMENT = "x" * 80


async def nothing_async(argument: str) -> int:
    """Do nothing on the event loop of the worker."""
    del argument
    return 1


def pause(index: int, seconds: float) -> int:
    """Sleep, and record the start and the end."""
    write_record("start", index)
    time.sleep(seconds)
    write_record("end", index)
    return index


async def pause_async(index: int, seconds: float) -> int:
    """Do the same as a coroutine, for systems that run those."""
    write_record("start", index)
    await asyncio.sleep(seconds)
    write_record("end", index)
    return index
