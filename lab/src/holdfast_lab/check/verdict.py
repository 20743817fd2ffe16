"""The findings of a rule, and the verdict from them.

- A rule without cases is *unknown*, not kept.
- A feature that a topology does not have is *not offered*; that does not affect the verdict.
- One finding is enough: *broken* outweighs everything.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from holdfast_lab.check.history import History
from holdfast_lab.check.story import Line
from holdfast_lab.history.records import Record, Run

#: Doubts of rules that need the state of the store, or the records of workers.
NOT_READ = "the store was not read, or has no jobs"
NOT_BEGUN = "no worker recorded an attempt"


class Status(Enum):
    """The outcome of a guarantee."""

    KEPT = "kept"
    BROKEN = "broken"
    UNKNOWN = "unknown"
    NOT_OFFERED = "not offered"


@dataclass(frozen=True, slots=True)
class SuspectedViolation:
    """A violation: the job, one sentence, and other jobs whose histories belong to it."""

    job_id: str
    text: str
    also: tuple[str, ...] = ()
    #: Calls that belong to it although they name no existing job.
    names: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()
    #: Facts of the store that name no job.
    records: tuple[Record, ...] = ()


@dataclass(slots=True)
class Tally:
    """The number of cases that a rule checked, and the reason if it could not check."""

    cases: int = 0
    #: Why the topology does not offer this.
    not_offered: str = ""
    #: Why there is no verdict although there were cases.
    doubt: str = ""
    #: A restriction of a verdict that was reached.
    note: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """One guarantee; `idle` explains why the rule had no cases."""

    name: str
    promise: str
    idle: str
    look: Callable[[History, Tally], Iterator[SuspectedViolation]]


@dataclass(frozen=True, slots=True)
class Finding:
    """A violation, and the records that show it, in order of time."""

    rule: str
    job_id: str
    text: str
    evidence: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Ruling:
    """The outcome of one guarantee; `count` is the number of all findings, of which the first are kept."""

    rule: str
    promise: str
    status: Status
    cases: int
    reason: str = ""
    count: int = 0
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a run."""

    run: Run
    rulings: tuple[Ruling, ...]
    #: The number of records of each kind.
    read: dict[str, int] = field(default_factory=dict)

    @property
    def is_kept(self) -> bool:
        return self.status is Status.KEPT

    @property
    def broken(self) -> list[Ruling]:
        return [ruling for ruling in self.rulings if ruling.status is Status.BROKEN]

    @property
    def unknown(self) -> list[Ruling]:
        return [ruling for ruling in self.rulings if ruling.status is Status.UNKNOWN]

    @property
    def findings(self) -> list[Finding]:
        return [finding for ruling in self.rulings for finding in ruling.findings]

    @property
    def status(self) -> Status:
        if self.broken:
            return Status.BROKEN
        return Status.UNKNOWN if self.unknown else Status.KEPT

    def ruling(self, rule: str) -> Ruling:
        """Returns the ruling of this rule."""
        return next(ruling for ruling in self.rulings if ruling.rule == rule)
