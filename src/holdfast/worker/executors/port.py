"""What every executor offers, and what it tells."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from holdfast.core.commands import ReportRow
from holdfast.worker.context import JobContext

Ended = tuple[JobContext, ReportRow]


class AttemptTally(msgspec.Struct):
    """What has happened in one worker since it started."""

    ended: int = 0
    timeouts: int = 0
    cancels: int = 0
    #: Attempts that did not end when they were told to, and were left behind.
    written_off: int = 0
    #: Children that died under a job.
    children_died: int = 0
    #: Children that were replaced because of their age or size.
    children_recycled: int = 0
    released: int = 0


class Watcher(msgspec.Struct, frozen=True):
    """Whom an executor tells, always on the worker's loop."""

    #: Attempts that are over, with their outcomes; one that was reported before may come again and is ignored.
    ended: Callable[[list[Ended]], None]
    tally: AttemptTally


class Executor(Protocol):
    """Runs attempts. Every one that was started is told to the watcher as ended, once or more."""

    def start(self, context: JobContext) -> None:
        """Runs the attempt, or lets it wait for its turn."""
        ...

    def interrupt(self, context: JobContext) -> None:
        """Ends an attempt whose `interrupt` says why; one that does not end in time is written off."""
        ...

    async def close(self) -> None:
        """Ends everything that is left, without a word."""
        ...
