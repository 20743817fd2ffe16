"""A history with indexes, so that no rule has to search.

- It does not judge. Every index holds the records, in order of time if they have one.
- Building it takes O(n log n), and a rule may take as long.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cached_property
from math import inf
from operator import attrgetter

from holdfast_lab.check.calls import RETRY, SUBMIT, Call, JobReading, JobSubmission
from holdfast_lab.check.faults import FiredFaults
from holdfast_lab.history.records import (
    FIRED,
    QUEUED,
    Answered,
    Asked,
    Began,
    Broken,
    DamageFact,
    Ended,
    EndFact,
    GrantFact,
    JobFact,
    Lost,
    Record,
    Refused,
    Run,
    TickFact,
)


class History:
    """All records of a run."""

    def __init__(self, run: Run, records: Iterable[Record]) -> None:
        self.run = run
        self.calls: dict[str, Call] = {}
        #: Signs of missing, repeated or impossible records.
        self.gaps: list[str] = []
        self.begun: defaultdict[str, list[Began]] = defaultdict(list)
        self.began: dict[str, Began] = {}
        self.ended: dict[str, Ended] = {}
        self.jobs: dict[str, JobFact] = {}
        #: Jobs that have the same id as another job.
        self.twins: list[JobFact] = []
        self.named: defaultdict[str, list[JobFact]] = defaultdict(list)
        self.grants: defaultdict[str, list[GrantFact]] = defaultdict(list)
        self.ends: defaultdict[str, list[EndFact]] = defaultdict(list)
        self.ticks: list[TickFact] = []
        self.damages: list[DamageFact] = []
        self.read: Counter[str] = Counter()
        self._take(records)
        self._sort()

    def _take(self, records: Iterable[Record]) -> None:
        answers: list[Answered | Refused | Lost] = []
        broken: list[Broken] = []
        for record in records:
            self.read[type(record).__name__] += 1
            match record:
                case Asked():
                    self._take_call(Call(record))
                case Answered() | Refused() | Lost():
                    answers.append(record)
                case Broken():
                    broken.append(record)
                case _:
                    self._take_fact(record)
        for answer in sorted(answers, key=attrgetter("at_us")):
            self._take_answer(answer)
        self.faults = FiredFaults(self.run, broken)
        for run, ended in self.ended.items():
            if run not in self.began:
                self.gaps.append(f"{run} ended, but never began")
            elif ended.at_us < self.began[run].at_us:
                self.gaps.append(f"{run} ended before it began")

    def _take_call(self, call: Call) -> None:
        if self.calls.setdefault(call.asked.op, call) is not call:
            self.gaps.append(f"two calls are {call.asked.op}")

    def _take_answer(self, answer: Answered | Refused | Lost) -> None:
        call = self.calls.get(answer.op)
        if call is None:
            self.gaps.append(f"{answer.op} was answered, but never sent")
        elif call.answer is not None:
            self.gaps.append(f"{answer.op} was answered twice")
        else:
            call.answer = answer
            if answer.at_us < call.asked_us:
                self.gaps.append(f"{answer.op} was answered before it was sent")

    def _take_beginning(self, began: Began) -> None:
        """Adds an attempt; a second record of the same run is a gap, not another attempt."""
        first = self.began.get(began.run)
        if first is None:
            self.began[began.run] = began
        else:
            self.gaps.append(f"{began.run} began twice")
        if first is None or first.job_id != began.job_id:
            self.begun[began.job_id].append(began)

    def _take_fact(self, record: Record) -> None:
        match record:
            case Began():
                self._take_beginning(record)
            case Ended():
                if record.run in self.ended:
                    self.gaps.append(f"{record.run} ended twice")
                self.ended.setdefault(record.run, record)
            case JobFact():
                if record.id in self.jobs:
                    self.twins.append(record)
                else:
                    self.jobs[record.id] = record
                self.named[record.name].append(record)
            case GrantFact():
                self.grants[record.job_id].append(record)
            case EndFact():
                self.ends[record.job_id].append(record)
            case TickFact():
                self.ticks.append(record)
            case DamageFact():
                self.damages.append(record)

    def _sort(self) -> None:
        self.calls = dict(sorted(self.calls.items(), key=lambda item: item[1].asked_us))
        for begun in self.begun.values():
            begun.sort(key=attrgetter("at_us"))
        for grants in self.grants.values():
            grants.sort(key=attrgetter("place"))

    # -- calls of clients

    @cached_property
    def kinds(self) -> set[str]:
        """The kinds of calls that were made."""
        return {call.asked.call for call in self.calls.values()}

    @cached_property
    def asks(self) -> list[JobSubmission]:
        """Every job of every submit, in the order of the calls."""
        return [
            JobSubmission(call, index, wanted)
            for call in self.calls.values()
            if call.asked.call == SUBMIT
            for index, wanted in enumerate(call.asked.wanted)
        ]

    @cached_property
    def asks_of(self) -> dict[str, list[JobSubmission]]:
        """Submits by the name of the job."""
        found: defaultdict[str, list[JobSubmission]] = defaultdict(list)
        for ask in self.asks:
            found[ask.wanted.name].append(ask)
        return dict(found)

    @cached_property
    def told(self) -> dict[str, list[JobSubmission]]:
        """Submits by the id in their response."""
        found: defaultdict[str, list[JobSubmission]] = defaultdict(list)
        for ask in self.asks:
            if ask.id:
                found[ask.id].append(ask)
        return dict(found)

    @cached_property
    def retried(self) -> dict[str, Call]:
        """The retry whose response has this id."""
        found: dict[str, Call] = {}
        for call in self.calls.values():
            if call.asked.call == RETRY and call.answered is not None:
                for job_id in filter(None, call.answered.ids):
                    found.setdefault(job_id, call)
        return found

    @cached_property
    def acknowledged_us(self) -> dict[str, float]:
        """When a job was first acknowledged, by its id."""
        found = {job_id: min(ask.call.heard_us for ask in asks) for job_id, asks in self.told.items()}
        for job_id, call in self.retried.items():
            found[job_id] = min(found.get(job_id, call.heard_us), call.heard_us)
        return found

    @cached_property
    def certain_us(self) -> dict[str, float]:
        """From when on a job is certain to exist: it was acknowledged, shown in a later state than QUEUED, or begun.

        A job that was only shown as QUEUED may be undone, as long as it was not acknowledged.
        """
        found = dict(self.acknowledged_us)
        for job_id, readings in self.readings.items():
            for one in readings:
                if one.seen.state > QUEUED:
                    found[job_id] = min(found.get(job_id, inf), one.heard_us)
        for job_id, begun in self.begun.items():
            found[job_id] = min(found.get(job_id, inf), begun[0].at_us)
        return found

    @cached_property
    def calls_on(self) -> dict[str, list[Call]]:
        """The calls that named a job, in order."""
        found: defaultdict[str, list[Call]] = defaultdict(list)
        for call in self.calls.values():
            if call.asked.job_id:
                found[call.asked.job_id].append(call)
        return dict(found)

    @cached_property
    def readings(self) -> dict[str, list[JobReading]]:
        """The readings of a job, in the order of the calls."""
        found: defaultdict[str, list[JobReading]] = defaultdict(list)
        for call in self.calls.values():
            for seen in call.answered.seen if call.answered is not None else ():
                found[seen.id].append(JobReading(call, seen))
        return dict(found)

    @cached_property
    def ticks_of_job(self) -> dict[str, list[TickFact]]:
        """The ticks that created a job, by its id."""
        found: defaultdict[str, list[TickFact]] = defaultdict(list)
        for tick in self.ticks:
            if tick.job_id:
                found[tick.job_id].append(tick)
        return dict(found)

    @cached_property
    def traced_schedules(self) -> set[str]:
        """The schedules whose ticks name the jobs that they created."""
        return {tick.schedule for tick in self.ticks if tick.job_id and tick.outcome == FIRED}

    @cached_property
    def keeps_results(self) -> bool:
        """Whether the store records the attempt of each result."""
        return any(job.run for job in self.jobs.values())

    def calls_named(self, job_id: str, call: str) -> list[Call]:
        """Returns the calls of a kind that named a job."""
        return [one for one in self.calls_on.get(job_id, ()) if one.asked.call == call]

    def granted_after_end(self, job_id: str, state: int) -> bool:
        """Whether the store has a grant of a job after an end with this state."""
        ends = [one.place for one in self.ends.get(job_id, ()) if one.place and one.state == state]
        return bool(ends) and any(one.place > min(ends) for one in self.grants.get(job_id, ()))

    def name_of(self, job_id: str) -> str:
        """Returns the name of a job; empty if it is unknown."""
        looked_at: set[str] = set()
        while job_id not in looked_at:  # a broken history may have a job that is a retry of itself
            looked_at.add(job_id)
            if job_id in self.jobs:
                return self.jobs[job_id].name
            if job_id in self.told:
                return self.told[job_id][0].wanted.name
            if job_id in self.retried:
                job_id = self.retried[job_id].asked.job_id
        return next((one.seen.name for one in self.readings.get(job_id, ()) if one.seen.name), "")
