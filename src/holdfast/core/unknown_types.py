"""Types of waiting jobs without a worker: a function was renamed or removed, or its module is not imported."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from holdfast import limits
from holdfast.core.overview import QueueView

_SHOWN_MAX = 8


def unknown_types(queues: Iterable[QueueView], known: Collection[str]) -> dict[str, int]:
    """The number of ready jobs of each type that no worker handles, largest first."""
    ready: Counter[str] = Counter()
    for queue in queues:
        ready.update({name: jobs for name, jobs in queue.types.items() if name not in known})
    return dict(ready.most_common())


def unknown_type_text(name: str, workers: int) -> str:
    """A sentence that explains why a job of such a type waits, and the remedy."""
    remedy = f"start one whose app defines it; a renamed function keeps its old name with aliases=[{name!r}]"
    return f"no worker knows the type {name!r} ({workers} connected; {remedy})"


def unknown_types_text(types: Mapping[str, int]) -> str:
    """One sentence for all such types with their job counts; a queue lists a bounded number of types."""
    shown = ", ".join(f"{name} ({jobs:,})" for name, jobs in [*types.items()][:_SHOWN_MAX])
    more = f" and {len(types) - _SHOWN_MAX} more" if len(types) > _SHOWN_MAX else ""
    jobs = sum(types.values())
    wait = "job waits" if jobs == 1 else "jobs wait"
    noun = "a type" if len(types) == 1 else "types"
    at_least = "at least " if len(types) >= limits.QUEUE_TYPES_MAX else ""
    return f"{at_least}{jobs:,} {wait} of {noun} that no connected worker knows: {shown}{more}"
