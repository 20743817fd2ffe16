"""A history, indexed once: every rule finds what it needs without a search.

- Nothing here judges; every index holds what was written, in the order of time where there is one.
- Building takes n log n, and so may a rule.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cached_property
from operator import attrgetter

from holdfast.lab.check.calls import RETRY, SUBMIT, Ask, Call, Reading
from holdfast.lab.history.records import (
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
    """Everything that was written down of a run."""

    def __init__(self, run: Run, records: Iterable[Record]) -> None:
        self.run = run
        self.calls: dict[str, Call] = {}
        #: Answers to calls that nobody wrote down before asking.
        self.strays: list[Answered | Refused | Lost] = []
        self.begun: defaultdict[str, list[Began]] = defaultdict(list)
        self.began: dict[str, Began] = {}
        self.ended: dict[str, Ended] = {}
        self.broken: list[Broken] = []
        self.jobs: dict[str, JobFact] = {}
        #: Jobs that exist once more under an id that another has.
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
        for record in records:
            self.read[type(record).__name__] += 1
            match record:
                case Asked():
                    self.calls.setdefault(record.op, Call(record))
                case Answered() | Refused() | Lost():
                    answers.append(record)
                case _:
                    self._take_fact(record)
        for answer in sorted(answers, key=attrgetter("at_us")):
            call = self.calls.get(answer.op)
            if call is None:
                self.strays.append(answer)
            elif call.answer is None:
                call.answer = answer

    def _take_fact(self, record: Record) -> None:
        match record:
            case Began():
                self.begun[record.job_id].append(record)
                self.began.setdefault(record.run, record)
            case Ended():
                self.ended.setdefault(record.run, record)
            case Broken():
                self.broken.append(record)
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
        self.broken.sort(key=attrgetter("at_us"))
        for begun in self.begun.values():
            begun.sort(key=attrgetter("at_us"))
        for grants in self.grants.values():
            grants.sort(key=attrgetter("place"))

    # -- what clients asked for

    @cached_property
    def asks(self) -> list[Ask]:
        """Every job of every submit, in the order of asking."""
        return [
            Ask(call, index, wanted)
            for call in self.calls.values()
            if call.asked.call == SUBMIT
            for index, wanted in enumerate(call.asked.wanted)
        ]

    @cached_property
    def asks_of(self) -> dict[str, list[Ask]]:
        """By the name of the job."""
        found: defaultdict[str, list[Ask]] = defaultdict(list)
        for ask in self.asks:
            found[ask.wanted.name].append(ask)
        return dict(found)

    @cached_property
    def told(self) -> dict[str, list[Ask]]:
        """The submits that were told this id."""
        found: defaultdict[str, list[Ask]] = defaultdict(list)
        for ask in self.asks:
            if ask.id:
                found[ask.id].append(ask)
        return dict(found)

    @cached_property
    def retried(self) -> dict[str, Call]:
        """The retry that was told this id."""
        found: dict[str, Call] = {}
        for call in self.calls.values():
            if call.asked.call == RETRY and call.answered is not None:
                for job_id in call.answered.ids:
                    found.setdefault(job_id, call)
        return found

    @cached_property
    def acknowledged_us(self) -> dict[str, float]:
        """When a job was first said to have been accepted, by its id."""
        found = {job_id: min(ask.call.heard_us for ask in asks) for job_id, asks in self.told.items()}
        for job_id, call in self.retried.items():
            found[job_id] = min(found.get(job_id, call.heard_us), call.heard_us)
        return found

    @cached_property
    def calls_on(self) -> dict[str, list[Call]]:
        """The calls that named a job, in the order of asking."""
        found: defaultdict[str, list[Call]] = defaultdict(list)
        for call in self.calls.values():
            if call.asked.job_id:
                found[call.asked.job_id].append(call)
        return dict(found)

    @cached_property
    def readings(self) -> dict[str, list[Reading]]:
        """What answers showed of a job, in the order of asking."""
        found: defaultdict[str, list[Reading]] = defaultdict(list)
        for call in self.calls.values():
            for seen in call.answered.seen if call.answered is not None else ():
                found[seen.id].append(Reading(call, seen))
        return dict(found)

    @cached_property
    def ticks_of_job(self) -> dict[str, list[TickFact]]:
        """The ticks that made a job, by its id."""
        found: defaultdict[str, list[TickFact]] = defaultdict(list)
        for tick in self.ticks:
            if tick.job_id:
                found[tick.job_id].append(tick)
        return dict(found)

    @cached_property
    def traced_schedules(self) -> set[str]:
        """The schedules whose ticks name the jobs that they made."""
        return {tick.schedule for tick in self.ticks if tick.job_id}

    def calls_named(self, job_id: str, call: str) -> list[Call]:
        """The calls of a kind that named a job."""
        return [one for one in self.calls_on.get(job_id, ()) if one.asked.call == call]

    def name_of(self, job_id: str) -> str:
        """The name that a job goes by; empty if nobody knows it."""
        if job_id in self.jobs:
            return self.jobs[job_id].name
        if job_id in self.told:
            return self.told[job_id][0].wanted.name
        if job_id in self.retried:
            return self.name_of(self.retried[job_id].asked.job_id)
        return next((one.seen.name for one in self.readings.get(job_id, ()) if one.seen.name), "")

    # -- what was broken

    @cached_property
    def _doublings(self) -> list[Broken]:
        return [one for one in self.broken if "duplicat" in one.kind]

    @cached_property
    def _doubled_from_us(self) -> int | None:
        """From when on connections may have been doubled; those of that time may live as long as the run."""
        return self._doublings[0].at_us if self._doublings else None

    def may_be_doubled(self, call: Call) -> bool:
        """Whether what was asked can have reached the other end twice."""
        return self._doubled_from_us is not None and self._doubled_from_us <= call.heard_us

    def is_asked_while_doubling(self, call: Call) -> bool:
        """Whether it was asked at a time when new connections were doubled."""
        return any(one.at_us <= call.heard_us and one.until_us >= call.asked_us for one in self._doublings)

    @cached_property
    def has_stepped_clocks(self) -> bool:
        """Whether any wall clock was ever wrong; what was created then keeps a wrong time for good."""
        return any("clock" in name for name in (*self.run.faults, *(one.kind for one in self.broken)))

    def is_disturbed(self, from_us: float, until_us: float, grace_us: int) -> bool:
        """Whether any fault was at work then, or had been less than so long before."""
        return any(one.at_us <= until_us and one.until_us + grace_us >= from_us for one in self.broken)
