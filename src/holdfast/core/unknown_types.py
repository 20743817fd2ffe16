"""Types of waiting jobs that no worker knows: a function was renamed or removed, or its module is not imported."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from holdfast import limits
from holdfast.core.overview import QueueView

_SHOWN_MAX = 8


def unknown_types(queues: Iterable[QueueView], known: Collection[str]) -> dict[str, int]:
    """How many jobs of each such type are ready, the most first."""
    ready: Counter[str] = Counter()
    for queue in queues:
        ready.update({name: jobs for name, jobs in queue.types.items() if name not in known})
    return dict(ready.most_common())


def unknown_type_text(name: str, workers: int) -> str:
    """Why a job of such a type waits, and what to do."""
    remedy = f"start one whose app defines it; a renamed function keeps its old name with aliases=[{name!r}]"
    return f"no worker knows the type {name!r} ({workers} connected; {remedy})"


def unknown_types_text(types: Mapping[str, int]) -> str:
    """The same for all of them together, with how many jobs each has; a queue tells of a bounded number of types."""
    shown = ", ".join(f"{name} ({jobs:,})" for name, jobs in [*types.items()][:_SHOWN_MAX])
    more = f" and {len(types) - _SHOWN_MAX} more" if len(types) > _SHOWN_MAX else ""
    jobs = sum(types.values())
    wait = "job waits" if jobs == 1 else "jobs wait"
    noun = "a type" if len(types) == 1 else "types"
    at_least = "at least " if len(types) >= limits.QUEUE_TYPES_MAX else ""
    return f"{at_least}{jobs:,} {wait} of {noun} that no connected worker knows: {shown}{more}"
