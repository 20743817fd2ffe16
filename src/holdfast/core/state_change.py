"""State changes for the log; the process that has committed them creates them."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec


class StateChange(msgspec.Struct, frozen=True, gc=False):
    """Jobs with the same state change. `old` is NOWHERE for new jobs, and equals `new` for a cancel request."""

    at_ms: int
    job_ids: list[str]
    old: int
    new: int
    #: The number of the attempt that started or ended; 0 before the first one.
    attempt: int
    priority: int
    worker: str = ""
    reason: str = ""


LogChanges = Callable[[Iterable[StateChange]], None]


def changes(rows: Iterable[Sequence[Any]], *, old: int, new: int, worker: str = "") -> list[StateChange]:
    """Groups rows of id, time, attempt and priority into state changes; jobs that changed alike are combined."""
    alike: dict[tuple[int, int, int], list[str]] = {}
    for job_id, at_ms, attempt, priority in rows:
        alike.setdefault((at_ms, attempt, priority), []).append(job_id)
    return [
        StateChange(at_ms, job_ids, old, new, attempt, priority, worker)
        for (at_ms, attempt, priority), job_ids in alike.items()
    ]
