"""The whole system at one position: jobs by state, waiting jobs by queue, and leases by worker."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from holdfast import limits
from holdfast.core.lifecycle import State
from holdfast.core.model import Closure, QueueMode

if TYPE_CHECKING:  # clients use the views and do not import the ledger
    from holdfast.core.ledger import Ledger

OPEN = Closure(QueueMode.OPEN, "", 0)


class QueueView(msgspec.Struct, frozen=True):
    """One queue: its mode, jobs that could be granted, jobs not due yet, running jobs, and the oldest wait.

    The oldest wait counts from the time when a job could first be granted, and considers only the next job of each
    lane. `types` counts the ready jobs by the type that a worker must handle: at most `QUEUE_TYPES_MAX` types, those
    with the most jobs. A backend that has to count rows stops at `TYPE_JOBS_COUNTED_MAX` for each type and priority,
    and earlier if the total would exceed `TYPES_COUNTED_MAX`.
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
    """One lease. It ends at `expires_ms` or later: heartbeats that extend it are not journaled."""

    token: int
    job_id: str
    type: str
    worker: str
    attempt: int
    granted_ms: int
    expires_ms: int


class Overview(msgspec.Struct, frozen=True):
    """A summary of the whole system."""

    position: int
    at_ms: int
    digest: str
    states: dict[str, int]
    queues: list[QueueView]
    leases: list[LeaseView]
    workers: dict[str, int]


def overview(ledger: "Ledger") -> Overview:
    """Computes the overview from the state alone."""
    ledger_state = ledger.state
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
        for lease in ledger_state.leases.values()
    ]
    return Overview(
        ledger.position,
        ledger_state.last_ms,
        f"{ledger.digest:016x}",
        {state.name: ledger_state.listing.count([state]) for state in State},
        queue_stats(ledger, ledger_state.last_ms),
        leases,
        {worker: len(tokens) for worker, tokens in ledger_state.tokens_of.items()},
    )


class QueueCounts:
    """The content of the queues at one instant, read from the ledger; `views` may be called later.

    Reading copies counters: the cost is one step for each lane, lease and queue, and does not grow with the jobs.
    """

    __slots__ = ("_delayed", "_lanes", "_modes", "_now_ms", "_running")

    def __init__(self, ledger: "Ledger", now_ms: int) -> None:
        state = ledger.state
        state.ready.promote(now_ms)
        self._now_ms = now_ms
        self._lanes = [
            (key, lane.ready, max((head := lane.head).created_ms, head.not_before_ms))
            for key, lane in state.ready.lanes.items()
        ]
        self._running = Counter([lease.job.template.queue for lease in state.leases.values()])
        self._delayed = dict(state.ready.delayed_in)
        self._modes = dict(state.modes)

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
    """Every queue that has jobs or is not open, by name; the cost grows with lanes, leases and queues."""
    return list(QueueCounts(ledger, now_ms).views())


def most_common(types: Mapping[str, int]) -> dict[str, int]:
    """The types with the most jobs, at most as many as one view may have."""
    if len(types) <= 1:
        return dict(types)
    return dict(Counter(types).most_common(limits.QUEUE_TYPES_MAX))
