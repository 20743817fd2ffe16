"""The interface of executors, and the callbacks to which they report."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from holdfast.core.commands import ReportRow
from holdfast.worker.context import JobContext

Ended = tuple[JobContext, ReportRow]


class AttemptTally(msgspec.Struct):
    """Counters of one worker since it started."""

    ended: int = 0
    timeouts: int = 0
    cancels: int = 0
    #: Attempts that did not end when interrupted, and were left behind.
    written_off: int = 0
    #: Children that died while they ran a job.
    children_died: int = 0
    #: Children that were replaced because of their age or size.
    children_recycled: int = 0
    released: int = 0


class ExecutorCallbacks(msgspec.Struct, frozen=True):
    """The callbacks of an executor, which calls them on the worker's loop only."""

    #: Called with ended attempts and their outcomes. An attempt may be reported more than once; repeats are ignored.
    ended: Callable[[list[Ended]], None]
    tally: AttemptTally


class Executor(Protocol):
    """Runs attempts, and reports each started attempt to the watcher as ended, once or more."""

    def start(self, context: JobContext) -> None:
        """Runs the attempt, or queues it."""
        ...

    def interrupt(self, context: JobContext) -> None:
        """Ends an attempt whose `interrupt` is set; an attempt that does not end in time is written off."""
        ...

    async def close(self) -> None:
        """Ends the remaining attempts; their outcomes no longer matter."""
        ...
