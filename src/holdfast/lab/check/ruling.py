"""What a rule finds, and what is made of it.

- A rule that looked at nothing has not been kept: it is *unknown*.
- What a topology does not offer is *not offered*; that neither proves nor spoils a run.
- One finding is enough: *broken* outweighs everything.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from holdfast.lab.check.history import History
from holdfast.lab.check.story import Line
from holdfast.lab.history.records import Record, Run

#: Why rules cannot say anything that need what the store says, or what workers wrote down.
NOT_READ = "the store was not read, or has no jobs"
NOT_BEGUN = "no worker wrote down what it began"


class Status(Enum):
    """What became of a promise."""

    KEPT = "kept"
    BROKEN = "broken"
    UNKNOWN = "unknown"
    NOT_OFFERED = "not offered"


@dataclass(frozen=True, slots=True)
class Suspect:
    """What a rule found: the job, one sentence, and other jobs whose histories belong to it."""

    job_id: str
    text: str
    also: tuple[str, ...] = ()
    #: Calls that belong to it although they name no job that exists.
    names: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()
    #: What the store says that names no job.
    records: tuple[Record, ...] = ()


@dataclass(slots=True)
class Tally:
    """What a rule looked at, and why it could not, if it could not."""

    cases: int = 0
    #: Why this cannot be asked of the topology.
    not_offered: str = ""
    #: Why nothing can be said although something was looked at.
    doubt: str = ""
    #: What was left out, though the rule was judged.
    note: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """One promise. `idle` says what did not happen where the rule had nothing to look at."""

    name: str
    promise: str
    idle: str
    look: Callable[[History, Tally], Iterator[Suspect]]


@dataclass(frozen=True, slots=True)
class Finding:
    """A promise that was broken, and the records that show it, in the order of time."""

    rule: str
    job_id: str
    text: str
    evidence: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Ruling:
    """What became of one promise; `count` are all findings, of which the first are kept."""

    rule: str
    promise: str
    status: Status
    cases: int
    reason: str = ""
    count: int = 0
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a run."""

    run: Run
    rulings: tuple[Ruling, ...]
    #: How many records of each kind were read.
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
        """That of the rule of this name."""
        return next(ruling for ruling in self.rulings if ruling.rule == rule)
