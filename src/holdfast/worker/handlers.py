"""What a worker runs for a type of jobs, and how a handler says that its attempt failed."""

from collections.abc import Awaitable, Callable
from enum import StrEnum

import msgspec

from holdfast.core.outcomes import OUTPUT_TOO_LARGE, too_large
from holdfast.ports import Assignment


class Mode(StrEnum):
    """Where a handler runs: on the worker's loop, in a thread of the worker, or in a child that can be killed."""

    ASYNC = "async"
    THREAD = "thread"
    PROCESS = "process"


class Handler(msgspec.Struct, frozen=True):
    """Runs the jobs of one type: takes the lease, returns the output."""

    run: Callable[[Assignment], bytes | Awaitable[bytes]]
    mode: Mode = Mode.ASYNC


class AttemptFailedError(Exception):
    """A handler says that its attempt failed, and why; it decides on retries and on the output itself.

    `summary` says more than the reason where the reason is a bare code.
    """

    def __init__(
        self, reason: str, *, is_retryable: bool = True, retry_after_ms: int = 0, output: bytes = b"", summary: str = ""
    ) -> None:
        super().__init__(summary or reason)
        self.reason = reason
        self.is_retryable = is_retryable
        self.retry_after_ms = retry_after_ms
        self.output = output
        self.summary = summary


def output_too_large(size_bytes: int) -> AttemptFailedError:
    """The failure of an attempt that returned too much; another attempt would return as much."""
    return AttemptFailedError(OUTPUT_TOO_LARGE, is_retryable=False, summary=too_large(size_bytes))
