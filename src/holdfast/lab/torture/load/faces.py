"""What a client can ask over any interface, and the three ways in which it is not answered."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from holdfast.lab.history.records import Seen, Wanted
from holdfast.lab.torture.jobs import Task

#: How long a call may take.
DEADLINE_S = 5.0
#: How long a failed attempt waits for the next one.
BACKOFF_MS = 100


class Order(msgspec.Struct, frozen=True):
    """One job to be asked for, with what it is to do."""

    wanted: Wanted
    task: Task

    @property
    def is_repeatable(self) -> bool:
        """Whether asking again cannot make a second job."""
        return bool(self.wanted.id or self.wanted.key)


class Told(msgspec.Struct, frozen=True):
    """What became of each order: an id, a refusal, or neither if nobody knows."""

    ids: list[str]
    refusals: dict[int, str] = {}
    existing: list[int] = []

    @property
    def is_whole(self) -> bool:
        """Whether something is said of every one."""
        return all(job_id or index in self.refusals for index, job_id in enumerate(self.ids))


class Page(msgspec.Struct, frozen=True):
    """Some jobs, and where to go on; an empty cursor is the end."""

    seen: list[Seen]
    cursor: str = ""


class RefusedError(Exception):
    """It was not done, and never will be."""

    def __init__(self, code: str, reason: str, message: str = "") -> None:
        super().__init__(f"{code} {reason} {message}".strip())
        self.code = code
        self.reason = reason


class LostError(Exception):
    """Nobody knows whether it was done."""

    def __init__(self, code: str, message: str = "", *, has_hint: bool = False) -> None:
        super().__init__(f"{code} {message}".strip())
        self.code = code
        self.has_hint = has_hint


class StrangeError(LostError):
    """An answer that the contract does not know: whether it was done is unknown, and that it came is a finding."""


class Face(Protocol):
    """One interface. Every method raises `RefusedError` or `LostError`, and never takes much longer than a deadline."""

    #: As in the records: grpc or http.
    via: str
    #: Whether it takes ids that clients made, options of jobs, batches, and retries.
    has_ids: bool
    has_options: bool

    async def submit(self, orders: Sequence[Order]) -> Told:
        """Asks for these jobs as one."""
        ...

    async def get(self, job_id: str) -> Seen:
        """The job as it is."""
        ...

    async def result(self, job_id: str, wait_s: float = 0.0) -> Seen:
        """How it ended, if it has; may wait for that where the interface can."""
        ...

    async def cancel(self, job_id: str) -> Seen:
        """Its state after it was asked to end."""
        ...

    async def retry(self, job_id: str, key: str) -> str:
        """The id of a new job like this one."""
        ...

    async def list(self, queue: str, cursor: str, size: int) -> Page:
        """Jobs of a queue, newest first."""
        ...

    async def set_paused(self, queue: str, *, is_paused: bool) -> None:
        """Stops a queue from handing out jobs, or lets it again."""
        ...

    async def close(self) -> None:
        """Nothing more is asked."""
        ...
