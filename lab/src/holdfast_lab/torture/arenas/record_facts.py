"""Facts from the events of the job service; each event is checked against the legal transitions."""

from collections.abc import Callable, Iterator

from holdfast.core.events import Created, Retired
from holdfast.core.lifecycle import LEGAL, QUEUED, RUNNING, TERMINAL, State
from holdfast.core.model import JobRecord, NewJob, Template
from holdfast.topologies.microservices.state.record_events import Deleted, Moved, RecordEvent, SpentBudget
from holdfast.topologies.microservices.state.records import Records
from holdfast_lab.history.records import EndFact, GrantFact, JobFact, Record
from holdfast_lab.torture.arenas.job_facts import job_fact

RunOf = Callable[[JobRecord], str]


class RecordFacts:
    """Takes events in order; the final state of a job is read from the records, which have applied all events."""

    def __init__(self, kept: Records, store: str, run_of: RunOf) -> None:
        self._kept = kept
        self._store = store
        self._run_of = run_of
        self._jobs: dict[str, JobFact] = {}
        self._moves: list[Record] = []
        self._states: dict[str, State] = {}
        self._tokens: dict[str, int] = {}
        self._last_token = 0
        self._number = 0
        #: Counts grants and ends.
        self._place = 0
        self.damage: list[str] = []

    def records(self) -> list[Record]:
        """Returns all facts, jobs first."""
        return [*self._jobs.values(), *self._moves]

    def take(self, event: RecordEvent) -> None:
        """Processes the next event."""
        match event:
            case Created():
                for row in event.jobs:
                    self._created(row, event.templates[row.template], event.at_ms)
            case Deleted():
                self._jobs.pop(event.job_id, None)
                self._states.pop(event.job_id, None)
            case Moved():
                self.damage += self._wrong(event)
                self._moved(event)
            case Retired():
                self.damage.append(f"{event.others + event.failed} jobs were forgotten, although none is old")
            case _:
                pass

    def _created(self, row: NewJob, template: Template, at_ms: int) -> None:
        self._number += 1
        self._states[row.id] = QUEUED
        job = self._kept.job(row.id)
        if job is None:  # a compensation has deleted it
            return
        self._jobs[row.id] = job_fact(
            row, template, job, at_ms=at_ms, number=self._number, store=self._store, run=self._run_of(job)
        )

    def _moved(self, event: Moved) -> None:
        self._states[event.job_id] = State(event.state)
        self._place += 1
        if event.state == RUNNING:
            self._last_token = self._tokens[event.job_id] = event.token
            self._moves.append(GrantFact(event.job_id, event.token, self._place, self._store, event.at_ms))
        elif event.state in TERMINAL:
            token = 0 if event.spends == SpentBudget.LOSS else event.token
            self._moves.append(EndFact(event.job_id, event.state, token, self._place))

    def _wrong(self, event: Moved) -> Iterator[str]:
        """Yields the rules that a move violates."""
        before = self._states.get(event.job_id)
        if before is None:
            yield f"a job that is not there moved: {event.job_id}"
        elif (before, State(event.state)) not in LEGAL:
            yield f"{event.job_id} went from {before.name} to {State(event.state).name}"
        elif before == RUNNING and event.token != self._tokens[event.job_id]:
            yield f"{event.job_id} left its lease {self._tokens[event.job_id]} under the token {event.token}"
        if event.state == RUNNING and event.token <= self._last_token:
            yield f"the token {event.token} follows the token {self._last_token}"
