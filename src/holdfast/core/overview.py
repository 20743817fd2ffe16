"""The whole system at one position: how many jobs in which state, what waits in which queue, who holds what."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from holdfast import limits
from holdfast.core.lifecycle import State
from holdfast.core.model import Closure, QueueMode

if TYPE_CHECKING:  # clients know the views, and need no ledger
    from holdfast.core.ledger import Ledger

OPEN = Closure(QueueMode.OPEN, "", 0)


class QueueView(msgspec.Struct, frozen=True):
    """One queue: its mode, jobs that could be granted, jobs not due yet, jobs that run, and the oldest wait.

    The oldest wait is counted from when a job could first have been granted, and looks at the next job of each lane.
    `types` says of how many jobs that could be granted a worker must know which type: at most `QUEUE_TYPES_MAX` types,
    those with the most jobs; a backend that has to count rows stops at `TYPE_JOBS_COUNTED_MAX` of a type and priority,
    and sooner where there are so many of these that all together would be more than `TYPES_COUNTED_MAX`.
    """

    name: str
    mode: QueueMode
    reason: str
    ready: int
    delayed: int
    running: int
    oldest_age_ms: int
    types: dict[str, int] = {}


class LeaseView(msgspec.Struct, frozen=True):
    """One lease."""

    token: int
    job_id: str
    type: str
    worker: str
    attempt: int
    granted_ms: int
    expires_ms: int


class Overview(msgspec.Struct, frozen=True):
    """Everything that a person wants to see first."""

    position: int
    at_ms: int
    digest: str
    states: dict[str, int]
    queues: list[QueueView]
    leases: list[LeaseView]
    workers: dict[str, int]


def overview(ledger: "Ledger") -> Overview:
    """Counts and holders, from the state alone."""
    book = ledger.book
    leases = [
        LeaseView(
            lease.token,
            lease.job.id,
            lease.job.template.type,
            lease.worker,
            lease.job.attempts,
            lease.granted_ms,
            lease.expires_ms,
        )
        for lease in book.leases.values()
    ]
    return Overview(
        ledger.position,
        book.last_ms,
        f"{ledger.digest:016x}",
        {state.name: book.listing.count([state]) for state in State},
        queue_stats(ledger, book.last_ms),
        leases,
        {worker: len(tokens) for worker, tokens in book.tokens_of.items()},
    )


def queue_stats(ledger: "Ledger", now_ms: int) -> list[QueueView]:
    """Every queue that has jobs or is not open, by name; costs what there are of lanes, leases and queues."""
    book = ledger.book
    book.ready.promote(now_ms)
    ready: Counter[str] = Counter()
    types: defaultdict[str, Counter[str]] = defaultdict(Counter)
    waited_ms: dict[str, int] = {}
    for (queue, route, _), lane in book.ready.lanes.items():
        ready[queue] += lane.ready
        types[queue][route] += lane.ready
        head = next(lane.in_order())
        age_ms = now_ms - max(head.created_ms, head.not_before_ms)
        waited_ms[queue] = max(age_ms, waited_ms.get(queue, 0))
    running = Counter(lease.job.template.queue for lease in book.leases.values())
    delayed = book.ready.delayed_in
    names = sorted({*ready, *delayed, *running, *book.modes})
    return [
        QueueView(
            name,
            *book.modes.get(name, OPEN)[:2],
            ready[name],
            delayed.get(name, 0),
            running[name],
            waited_ms.get(name, 0),
            most_common(types[name]),
        )
        for name in names
    ]


def most_common(types: Mapping[str, int]) -> dict[str, int]:
    """The types with the most jobs, as many as one view may have."""
    return dict(Counter(types).most_common(limits.QUEUE_TYPES_MAX))
