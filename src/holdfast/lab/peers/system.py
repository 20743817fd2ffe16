"""What a system must be able to do to be measured."""

from typing import Protocol

import msgspec


class About(msgspec.Struct, frozen=True):
    """What a reader must know of a system before comparing its figures."""

    title: str
    version: str
    #: How it was run: pool, concurrency, prefetch, how results are stored and awaited.
    settings: str
    #: What survives when an accepted job's machine stops at once.
    durability: str
    #: What becomes of the jobs of a killed worker with the system's defaults, by its documents.
    after_a_kill: str


class System(Protocol):
    """One job queue. Built in the producer's process; its workers are processes of their own.

    A method that fails raises whatever the system raises: the trial is then reported as failed.
    """

    @property
    def about(self) -> About:
        """The system, as it is set up here."""
        ...

    def worker_command(self) -> list[str]:
        """The system's own command for one worker process."""
        ...

    def enqueue_many(self, count: int) -> None:
        """Brings in no-op jobs with the system's own call for many; returns when all are accepted."""
        ...

    def enqueue_pauses(self, indexes: range, seconds: float) -> None:
        """Brings in jobs that take time and leave records."""
        ...

    def submit_and_wait(self) -> None:
        """One no-op job, from its submit until its result is here."""
        ...

    def count_done(self) -> int:
        """How many no-op jobs have ended with their results stored; only differences have a meaning."""
        ...

    def count_kept(self) -> int:
        """How many jobs without a result the system still knows of: to be run later, or given up."""
        ...

    def close(self) -> None:
        """Lets go of connections."""
        ...
