"""Checks of request fields, before a backend is called."""

import re
from collections.abc import Iterable

from holdfast import limits
from holdfast.core.lifecycle import State
from holdfast.errors import InvalidArgumentError

_NAME = re.compile(limits.NAME_PATTERN)


def checked_id(job_id: str) -> str:
    """Checks a job id; the job need not exist."""
    if not job_id:
        raise InvalidArgumentError("job_id must be a job's id, got an empty string", reason="JOB_ID_EMPTY")
    if len(job_id) > limits.JOB_ID_CHARS_MAX:
        rule = f"at most {limits.JOB_ID_CHARS_MAX} characters"
        raise InvalidArgumentError(f"job_id must be {rule}, got {len(job_id)}", reason="JOB_ID_TOO_LONG")
    return job_id


def checked_new_id(job_id: str) -> str:
    """Checks the id of a new job, which will be stored, logged and shown."""
    if not checked_id(job_id).isprintable():
        raise InvalidArgumentError(f"job_id must be printable characters, got {job_id[:80]!r}", reason="JOB_ID_INVALID")
    return job_id


def checked_states(statuses: Iterable[int]) -> frozenset[State]:
    """Converts the states of a filter; none means all."""
    try:
        return frozenset(State(status) for status in statuses)
    except ValueError:
        names = ", ".join(state.name for state in State)
        message = f"status_filter must hold only {names}"
        raise InvalidArgumentError(message, reason="STATUS_INVALID") from None


def checked_size(size: int) -> int:
    """Returns the size of a page; 0 means the default, more than the maximum means the maximum."""
    return min(size, limits.PAGE_SIZE_MAX) if size else limits.PAGE_SIZE_DEFAULT


def checked_name(what: str, name: str, *, reason: str = "NAME_INVALID") -> str:
    """Checks a name, which will be logged and shown."""
    if not _NAME.fullmatch(name):
        raise InvalidArgumentError(
            f"{what} must be 1 to {limits.NAME_CHARS_MAX} letters, digits, '.', '_' or '-', got {name[:80]!r}",
            reason=reason,
        )
    return name
