"""What a request must be like before any backend sees it."""

import re
from collections.abc import Iterable

from holdfast import limits
from holdfast.core.lifecycle import State
from holdfast.errors import InvalidArgumentError

_NAME = re.compile(limits.NAME_PATTERN)


def checked_id(job_id: str) -> str:
    """An id that may name a job; whether it does is another question."""
    if not job_id:
        raise InvalidArgumentError("expected job_id to be a job's id, got an empty string", reason="JOB_ID_EMPTY")
    if len(job_id) > limits.JOB_ID_CHARS_MAX:
        rule = f"at most {limits.JOB_ID_CHARS_MAX} characters"
        raise InvalidArgumentError(f"expected job_id to be {rule}, got {len(job_id)}", reason="JOB_ID_TOO_LONG")
    return job_id


def checked_new_id(job_id: str) -> str:
    """An id under which something is going to be kept, and so logged and shown."""
    if not checked_id(job_id).isprintable():
        raise InvalidArgumentError(
            f"expected job_id to be printable characters, got {job_id[:80]!r}", reason="JOB_ID_INVALID"
        )
    return job_id


def checked_states(statuses: Iterable[int]) -> frozenset[State]:
    """The states to look for; none means all."""
    try:
        return frozenset(State(status) for status in statuses)
    except ValueError:
        names = ", ".join(state.name for state in State)
        message = f"expected status_filter to hold only {names}"
        raise InvalidArgumentError(message, reason="STATUS_INVALID") from None


def checked_size(size: int) -> int:
    """The size of a page; 0 means the default, more than the maximum means the maximum."""
    return min(size, limits.PAGE_SIZE_MAX) if size else limits.PAGE_SIZE_DEFAULT


def checked_name(what: str, name: str, *, reason: str = "NAME_INVALID") -> str:
    """A name that can be logged and shown."""
    if not _NAME.fullmatch(name):
        raise InvalidArgumentError(
            f"expected {what} to be 1 to {limits.NAME_CHARS_MAX} letters, digits, '.', '_' or '-', got {name[:80]!r}",
            reason=reason,
        )
    return name
