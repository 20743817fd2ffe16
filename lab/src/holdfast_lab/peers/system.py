"""The port that a measured system implements."""

from typing import Protocol

import msgspec


class SystemDescription(msgspec.Struct, frozen=True):
    """Description of a system, for readers of its figures."""

    title: str
    version: str
    #: How it was run: pool, concurrency, prefetch, how results are stored and awaited.
    settings: str
    #: Whether acknowledged jobs are synced to disk; begins with yes or no.
    durability: str
    #: The fate of a killed worker's jobs with the system's defaults, as its documents state it.
    after_a_kill: str
    is_ours: bool = False
    #: Jobs of one call of `enqueue_many` while the system is measured.
    chunk: int = 500


#: Callers at a time in `submit_together`.
CALLERS = 64
#: Batches at a time, and jobs of each, in `enqueue_many` of a system with concurrent callers.
BATCHES = 4
_BATCH = 500


class System(Protocol):
    """One job queue. It is built in the producer's process; its workers are processes of their own.

    A method that fails raises the error of the system: the trial is then reported as failed.
    """

    @property
    def about(self) -> SystemDescription:
        """The system, as it is set up here."""
        ...

    def worker_command(self) -> list[str]:
        """The system's own command for one worker process; called for each one. Empty: the system has started all."""
        ...

    def enqueue_many(self, count: int) -> None:
        """Submit no-op jobs with the system's own call for many; returns when all are accepted."""
        ...

    def submit_each(self, count: int) -> None:
        """Submit no-op jobs as a lone caller does: each after the one before was accepted."""
        ...

    def enqueue_pauses(self, indexes: range, seconds: float) -> None:
        """Submit jobs that take time and leave records."""
        ...

    def submit_and_wait(self) -> None:
        """Submit one no-op job and wait for its result."""
        ...

    def count_done(self) -> int:
        """The number of no-op jobs with a stored result; only differences have a meaning."""
        ...

    def count_kept(self) -> int:
        """The number of jobs without a result that the system still knows: to be run later, or given up."""
        ...

    def close(self) -> None:
        """Close connections."""
        ...


class ConcurrentSystem(System, Protocol):
    """A system that is also measured with concurrent callers."""

    def submit_together(self, count: int) -> None:
        """Submit no-op jobs one by one from `CALLERS` concurrent callers; a multiple of their number."""
        ...


def batches(count: int) -> list[int]:
    """The sizes of the batches of so many jobs."""
    return [min(_BATCH, count - first) for first in range(0, count, _BATCH)]
