"""The records of a history: one JSON object a line, in files that their writers only append to.

A folder holds `run.json` (a `Run`), and any number of `*.jsonl` files of the other records. Times called `at_us` are
microseconds of this machine's steady clock, which all its processes share. Whoever writes is killed now and then: a
line is written in one piece, and a last line without its end does not count.

A client writes `Asked` before it sends and one of `Answered`, `Refused` or `Lost` afterwards. `Lost`, or nothing at
all, means *unknown*: it may have been done, now or later, and never counts as failed.
"""

from typing import Annotated

import msgspec

#: The states of the public contract.
QUEUED, RUNNING, DONE, FAILED, CANCELED = 1, 2, 3, 4, 5
TERMINAL = frozenset({DONE, FAILED, CANCELED})
#: What became of a tick that made a job, and of a job that was made by hand; anything else is a reason for none.
FIRED, TRIGGERED = "fired", "triggered"

#: Why an attempt failed that was asked to.
BY_REQUEST = "BY_REQUEST"
#: Why a job failed that lost its worker too often.
WORKER_LOST = "WORKER_LOST"

#: Microseconds of the steady clock.
Instant = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


class Wanted(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One job that a client asks for. `name` is its own in the whole run, and becomes the job's label `name`."""

    name: str
    #: Made by the client, so that asking again gives the same job; empty: the server makes one.
    id: str = ""
    #: The request id; asking again under it gives the same job, asking for something else is refused.
    key: str = ""
    #: Says whether two are the same: two that share a key and differ in this must not both be accepted.
    digest: str = ""
    type: str = ""
    queue: str = "default"
    priority: int = 0
    #: How long after its acceptance it may begin at the earliest.
    delay_ms: int = 0
    max_attempts: int = 1
    #: How many of its attempts fail by themselves, for the reason `BY_REQUEST`.
    fails: int = 0


class Seen(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One job as an answer shows it."""

    id: str
    state: int
    name: str = ""
    attempts: int = 0
    #: What the job returned: the `run` of the attempt that counted. Empty: it has no result, or none was asked for.
    run: str = ""
    reason: str = ""


class _Record(msgspec.Struct, frozen=True, tag_field="record", omit_defaults=True, forbid_unknown_fields=True):
    """One line. What it says beyond its fields would go unjudged, so it is refused."""


class Asked(_Record, frozen=True, tag="asked"):
    """A client is about to send a call. `op` is its own in the whole run."""

    at_us: Instant
    op: str
    client: str
    #: submit, get, result, cancel, retry, list, pause, resume, schedule, …
    call: str
    #: grpc, http or direct.
    via: str
    #: Of a submit.
    wanted: list[Wanted] = []
    #: Of everything else.
    job_id: str = ""
    #: How long the client waits for an answer; 0: whether it hangs is not judged.
    deadline_ms: int = 0


class Answered(_Record, frozen=True, tag="answered"):
    """It was done. For a submit: for each job its id, or an empty one with the reason why it was refused.

    An empty id without a reason is unknown, like a call without an answer.
    For a retry: the id of the new job, which has the name of the old one.
    """

    at_us: Instant
    op: str
    ids: list[str] = []
    #: By index.
    refusals: dict[int, str] = {}
    #: Which of them were there before.
    existing: list[int] = []
    #: Of get, result, cancel, and list.
    seen: list[Seen] = []


class Refused(_Record, frozen=True, tag="refused"):
    """It was not done, and never will be: an error that says so."""

    at_us: Instant
    op: str
    code: str
    reason: str = ""


class Lost(_Record, frozen=True, tag="lost"):
    """Nobody knows whether it was done: no answer, or one that says UNAVAILABLE or DEADLINE_EXCEEDED."""

    at_us: Instant
    op: str
    code: str = ""
    #: Whether it came with a hint when to try again.
    has_hint: bool = False


class Began(_Record, frozen=True, tag="began"):
    """A worker has begun an attempt. `run` is the attempt's own in the whole run, and what a good one returns."""

    at_us: Instant
    run: str
    job_id: str
    #: Of the lease; it only grows for one job.
    token: int
    worker: str
    attempt: int = 0
    #: Of the machine's wall clock, which schedules and delays go by; 0 where clocks are stepped.
    wall_ms: int = 0


class Ended(_Record, frozen=True, tag="ended"):
    """The function returned, raised, or was interrupted; what came of the report is not known here."""

    at_us: Instant
    run: str
    #: done, failed or interrupted.
    outcome: str


class Broken(_Record, frozen=True, tag="broken"):
    """A fault that was fired: `kind` is its name, `target` whom it hit."""

    at_us: Instant
    until_us: Instant
    kind: str
    target: str = ""
    note: str = ""


# -- what the store says, once everything has ended


class JobFact(_Record, frozen=True, tag="job"):
    """A job that exists."""

    id: str
    name: str
    state: int
    type: str = ""
    queue: str = ""
    priority: int = 0
    #: Its place in the order of submits, where there is one; comparable within `store`.
    number: int = 0
    #: Which store: a node, a database.
    store: str = ""
    key: str = ""
    not_before_ms: int = 0
    created_ms: int = 0
    #: How often it was handed out; 0 where that is not kept.
    grants: int = 0
    #: The token that its result came under; 0 where nobody's did, or where that is not kept.
    token: int = 0
    run: str = ""
    #: Of the schedule that made it, if one did.
    schedule: str = ""
    #: The job that it was made like, where a retry made it.
    retry_of: str = ""
    #: Why it failed, where that is kept.
    reason: str = ""


class GrantFact(_Record, frozen=True, tag="grant"):
    """A lease that was given. `place` orders all grants of one store; `at_ms` is by the store's clock."""

    job_id: str
    token: int
    place: int
    store: str = ""
    at_ms: int = 0


class EndFact(_Record, frozen=True, tag="end"):
    """A terminal result that was accepted; a job has one of these."""

    job_id: str
    state: int
    token: int = 0
    #: In the same order as the places of grants; 0 where that is not kept.
    place: int = 0


class TickFact(_Record, frozen=True, tag="tick"):
    """What became of one tick of a schedule: `outcome` is fired, skipped, missed or triggered."""

    schedule: str
    tick_ms: int
    outcome: str
    job_id: str = ""
    #: How many ticks beside it, before or after, the store says it passed over together with this one.
    passed: int = 0


class DamageFact(_Record, frozen=True, tag="damage"):
    """Something that the store itself shows to be wrong, found by whoever read it."""

    text: str
    job_id: str = ""


Record = (
    Asked | Answered | Refused | Lost | Began | Ended | Broken | JobFact | GrantFact | EndFact | TickFact | DamageFact
)


class Schedule(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A schedule that ran all the time: one job for every `every_ms` of UTC, the first and last tick included."""

    name: str
    every_ms: Annotated[int, msgspec.Meta(gt=0)]
    first_ms: int
    last_ms: int


class Run(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What was run, and what of it had to happen for the run to prove anything."""

    topology: str
    seed: int
    #: The faults that were enabled; each has to be fired.
    faults: list[str] = []
    #: Why others were not.
    left_out: dict[str, str] = {}
    #: The calls that clients made; each has to succeed at least once.
    calls: list[str] = []
    #: What the store can be asked for: grants, order, ticks. What it lacks is not judged, and said to be so.
    keeps: list[str] = []
    #: Results are kept apart from states: a job whose result is there already may be handed out once more before its
    #: state says so.
    results_apart: bool = False
    schedules: list[Schedule] = []
    #: How clients can ask: grpc, http; empty: both. Where one is missing they are not compared, and said not to be.
    interfaces: list[str] = []
    begun_us: Instant = 0
    faults_ended_us: Instant = 0
    #: When every job had ended; 0: they had not within the bound.
    drained_us: Instant = 0
    drain_bound_s: float = 0.0
    #: How many files of journals were removed during the run because their history was over.
    trimmed: int = 0
    version: str = ""
    command: str = ""
