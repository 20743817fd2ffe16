"""The whole system at one position: how many jobs in which state, what waits in which queue, who holds what."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
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
    """One lease. It ends at `expires_ms` or later: heartbeats that move it are not journaled."""

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


class QueueCounts:
    """What the queues hold at one instant, as it is read from the ledger; `views` can wait until later.

    Reading copies counters: it costs one step for each lane, lease and queue, and nothing that grows with the jobs.
    """

    __slots__ = ("_delayed", "_lanes", "_modes", "_now_ms", "_running")

    def __init__(self, ledger: "Ledger", now_ms: int) -> None:
        book = ledger.book
        book.ready.promote(now_ms)
        self._now_ms = now_ms
        self._lanes = [
            (key, lane.ready, max((head := lane.head).created_ms, head.not_before_ms))
            for key, lane in book.ready.lanes.items()
        ]
        self._running = Counter([lease.job.template.queue for lease in book.leases.values()])
        self._delayed = dict(book.ready.delayed_in)
        self._modes = dict(book.modes)

    def views(self) -> Iterator[QueueView]:
        """Every queue that has jobs or is not open, by name."""
        ready: dict[str, int] = {}
        types: defaultdict[str, dict[str, int]] = defaultdict(dict)
        waited_ms: dict[str, int] = {}
        for (queue, route, _), count, since_ms in self._lanes:
            ready[queue] = ready.get(queue, 0) + count
            known = types[queue]
            known[route] = known.get(route, 0) + count
            waited_ms[queue] = max(self._now_ms - since_ms, waited_ms.get(queue, 0))
        for name in sorted({*ready, *self._delayed, *self._running, *self._modes}):
            yield QueueView(
                name,
                *self._modes.get(name, OPEN)[:2],
                ready.get(name, 0),
                self._delayed.get(name, 0),
                self._running[name],
                waited_ms.get(name, 0),
                most_common(types.get(name, {})),
            )


def queue_stats(ledger: "Ledger", now_ms: int) -> list[QueueView]:
    """Every queue that has jobs or is not open, by name; costs what there are of lanes, leases and queues."""
    return list(QueueCounts(ledger, now_ms).views())


def most_common(types: Mapping[str, int]) -> dict[str, int]:
    """The types with the most jobs, as many as one view may have."""
    if len(types) <= 1:
        return dict(types)
    return dict(Counter(types).most_common(limits.QUEUE_TYPES_MAX))
