"""The whole system at one position: how many jobs in which state, what waits in which queue, who holds what."""

from collections import Counter

import msgspec

from holdfast.core.ledger import Ledger
from holdfast.core.lifecycle import QUEUED, RUNNING, State


class QueueView(msgspec.Struct, frozen=True):
    """One queue: jobs that could be granted, jobs not due yet, jobs that run."""

    name: str
    ready: int
    delayed: int
    running: int


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


def overview(ledger: Ledger) -> Overview:
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
        _queues(ledger),
        leases,
        {worker: len(tokens) for worker, tokens in book.tokens_of.items()},
    )


def _queues(ledger: Ledger) -> list[QueueView]:
    book = ledger.book
    ready: Counter[str] = Counter()
    delayed: Counter[str] = Counter()
    running = Counter(lease.job.template.queue for lease in book.leases.values())
    for job in book.jobs.values():
        if job.state == QUEUED:
            (delayed if job.not_before_ms > book.last_ms else ready)[job.template.queue] += 1
    names = sorted(ready.keys() | delayed.keys() | running.keys())
    assert running.total() == book.listing.count([RUNNING])
    return [QueueView(name, ready[name], delayed[name], running[name]) for name in names]
