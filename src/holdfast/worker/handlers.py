"""Handlers, which run the jobs of one type, and the exception by which a handler reports a failed attempt."""

from collections.abc import Awaitable, Callable
from enum import StrEnum

import msgspec

from holdfast.core.outcomes import OUTPUT_TOO_LARGE, too_large
from holdfast.ports import Assignment


class Mode(StrEnum):
    """The place where a handler runs: the worker's loop, a thread of the worker, or a child that can be killed."""

    ASYNC = "async"
    THREAD = "thread"
    PROCESS = "process"


class Handler(msgspec.Struct, frozen=True):
    """Runs the jobs of one type: takes the lease, returns the output."""

    run: Callable[[Assignment], bytes | Awaitable[bytes]]
    mode: Mode = Mode.ASYNC


class AttemptFailedError(Exception):
    """Raised by a handler whose attempt failed; it also decides on a retry and on the output.

    `summary` adds details when the reason is only a code.
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
    """The failure of an attempt whose output is too large. It is final: the next output would be as large."""
    return AttemptFailedError(OUTPUT_TOO_LARGE, is_retryable=False, summary=too_large(size_bytes))
