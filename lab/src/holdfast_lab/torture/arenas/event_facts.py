"""Facts from the events of a ledger: jobs, leases, ends and ticks, in the order of the decisions."""

from collections.abc import Iterator

import msgspec

from holdfast.core import events
from holdfast.core.events import (
    AnyEvent,
    CancelAccepted,
    Created,
    Granted,
    QueuedCanceled,
    Reported,
    Revoked,
    Ticked,
)
from holdfast.core.ledger import Ledger
from holdfast.core.lifecycle import CANCELED, TERMINAL
from holdfast.core.model import JobRecord, NewJob, Template
from holdfast.core.ticks import MISSED
from holdfast.journal.port import Frame
from holdfast_lab.history.records import DamageFact, EndFact, GrantFact, Record, TickFact
from holdfast_lab.torture.arenas.job_facts import job_fact
from holdfast_lab.torture.jobs import run_of


class EventFacts:
    """Takes frames in order; the final state of a job is read from the ledger, which has applied all frames."""

    def __init__(self, ledger: Ledger, store: str) -> None:
        self._ledger = ledger
        self._store = store
        self._jobs: list[Record] = []
        self._others: list[Record] = []
        #: Job ids by token.
        self._granted: dict[int, str] = {}
        self._number = 0
        #: Counts grants and ends.
        self._place = 0

    def take(self, frame: Frame) -> None:
        """Processes all events of a frame."""
        for event in events.decode(frame.body):
            self._others += self._of(event)

    def records(self) -> list[Record]:
        """Returns all facts, jobs first."""
        return [*self._jobs, *self._others]

    def _of(self, event: AnyEvent) -> Iterator[Record]:
        match event:
            case Created():
                for row in event.jobs:
                    self._created(row, event.templates[row.template], event.at_ms)
            case Granted():
                yield from self._grants(event)
            case Ticked():
                yield from self._tick(event)
            case _:
                for job_id, state, token in self._moves(event):
                    yield from self._end(job_id, state, token)

    def _moves(self, event: AnyEvent) -> list[tuple[str, int, int]]:
        """Returns job, new state, and the token of the report, if a worker sent one."""
        match event:
            case Reported():
                return [(self._granted.get(one.token, ""), one.state, one.token) for one in event.results]
            case Revoked():
                return [(self._granted.get(one.token, ""), one.state, 0) for one in event.rows]
            case CancelAccepted():
                return [(event.job_id, event.state, 0)]
            case QueuedCanceled():
                return [(job_id, CANCELED, 0) for job_id in event.job_ids]
        return []

    def _created(self, row: NewJob, template: Template, at_ms: int, schedule: str = "") -> None:
        self._number += 1
        job = self._ledger.state.jobs.get(row.id)
        if job is None:
            self._jobs.append(DamageFact(f"{self._store} has forgotten a job that is not old", row.id))
            return
        fact = job_fact(row, template, job, at_ms=at_ms, number=self._number, store=self._store, run=_run(job))
        self._jobs.append(msgspec.structs.replace(fact, schedule=schedule))

    def _grants(self, event: Granted) -> Iterator[Record]:
        for token, job_id in enumerate(event.job_ids, event.first_token):
            self._granted[token] = job_id
            self._place += 1
            yield GrantFact(job_id, token, self._place, self._store, event.at_ms)

    def _end(self, job_id: str, state: int, token: int = 0) -> Iterator[Record]:
        if state in TERMINAL:
            self._place += 1
            yield EndFact(job_id, state, token, self._place)

    def _tick(self, event: Ticked) -> Iterator[Record]:
        if event.job is not None and event.template is not None:
            self._created(event.job, event.template, event.at_ms, event.name)
        if event.canceled:
            yield from self._end(event.canceled, event.canceled_state)
        # If this tick was missed, the count includes it.
        passed = event.missed - (event.outcome == MISSED)
        yield TickFact(event.name, event.tick_ms, event.outcome, event.job.id if event.job else "", passed)


def _run(job: JobRecord) -> str:
    """Returns the run that the job's result names."""
    return run_of(job.result.output) if job.result is not None and job.result.output else ""
