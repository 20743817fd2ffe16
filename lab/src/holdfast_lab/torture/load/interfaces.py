"""The calls that every interface offers, and the errors of a call without a response."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from holdfast_lab.history.records import JobSnapshot, JobSpec
from holdfast_lab.torture.jobs import Task

#: Deadline of a call.
DEADLINE_S = 5.0
#: Back-off after a failed attempt.
BACKOFF_MS = 100


class JobOrder(msgspec.Struct, frozen=True):
    """One job to submit, with its instructions."""

    wanted: JobSpec
    task: Task

    @property
    def is_repeatable(self) -> bool:
        """Whether a repeat cannot create a second job."""
        return bool(self.wanted.id or self.wanted.key)


class SubmitReply(msgspec.Struct, frozen=True):
    """The outcome of each order: an id, a refusal, or neither if it is unknown."""

    ids: list[str]
    refusals: dict[int, str] = {}
    existing: list[int] = []

    @property
    def is_whole(self) -> bool:
        """Whether the outcome of every order is known."""
        return all(job_id or index in self.refusals for index, job_id in enumerate(self.ids))


class Page(msgspec.Struct, frozen=True):
    """Some jobs, and the cursor of the next page; an empty cursor is the end."""

    seen: list[JobSnapshot]
    cursor: str = ""


class RefusedError(Exception):
    """The call was refused: it had no effect, and never will."""

    def __init__(self, code: str, reason: str, message: str = "") -> None:
        super().__init__(f"{code} {reason} {message}".strip())
        self.code = code
        self.reason = reason


class LostError(Exception):
    """The outcome of the call is unknown."""

    def __init__(self, code: str, message: str = "", *, has_hint: bool = False) -> None:
        super().__init__(f"{code} {message}".strip())
        self.code = code
        self.has_hint = has_hint


class StrangeError(LostError):
    """A response that is not in the contract: the outcome is unknown, and the response is a finding."""


class LoadInterface(Protocol):
    """One interface; every method may raise `RefusedError` or `LostError`, and ends soon after its deadline."""

    #: The name in the records: grpc or http.
    via: str
    #: Whether it supports ids made by clients, and options of jobs, batches and retries.
    has_ids: bool
    has_options: bool

    async def submit(self, orders: Sequence[JobOrder]) -> SubmitReply:
        """Submits these jobs as one request."""
        ...

    async def get(self, job_id: str) -> JobSnapshot:
        """Returns the job as shown."""
        ...

    async def result(self, job_id: str, wait_s: float = 0.0) -> JobSnapshot:
        """Returns the result, if the job has ended; may wait for it if the interface can."""
        ...

    async def cancel(self, job_id: str) -> JobSnapshot:
        """Cancels the job; returns its state afterwards."""
        ...

    async def retry(self, job_id: str, key: str) -> str:
        """Retries the job; returns the id of the new one."""
        ...

    async def list(self, queue: str, cursor: str, size: int) -> Page:
        """Returns jobs of a queue, newest first."""
        ...

    async def set_paused(self, queue: str, *, is_paused: bool) -> None:
        """Pauses or resumes a queue."""
        ...

    async def close(self) -> None:
        """Closes the connection."""
        ...
