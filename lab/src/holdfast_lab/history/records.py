"""The records of a history: one JSON object a line, in append-only files.

A folder contains `run.json` (a `Run`), and any number of `*.jsonl` files with the other records. Times called `at_us`
are microseconds of this machine's monotonic clock, which all its processes share. Writers may be killed: a line is
written in one piece, and an incomplete last line does not count.

A client writes `Asked` before it sends a call and one of `Answered`, `Refused` or `Lost` afterwards. `Lost`, or nothing
at all, means *unknown*: the call may take effect at any later time, and never counts as failed.
"""

from typing import Annotated

import msgspec

#: The states of the public contract.
QUEUED, RUNNING, DONE, FAILED, CANCELED = 1, 2, 3, 4, 5
TERMINAL = frozenset({DONE, FAILED, CANCELED})
#: The outcomes of a tick that created a job, and of a job created by hand; others are reasons for no job.
FIRED, TRIGGERED = "fired", "triggered"

#: The reason of an attempt that failed on purpose.
BY_REQUEST = "BY_REQUEST"
#: The reason of a job that lost its worker too often.
WORKER_LOST = "WORKER_LOST"

#: Microseconds of the monotonic clock.
Instant = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


class JobSpec(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One job that a client submits; `name` is unique in the run, and becomes the job's label `name`."""

    name: str
    #: Made by the client, so that a repeat returns the same job; empty: the server makes one.
    id: str = ""
    #: The request id: a repeat returns the same job, other content is refused.
    key: str = ""
    #: Identifies the content: two submits with the same key and different digests must not both be accepted.
    digest: str = ""
    type: str = ""
    queue: str = "default"
    priority: int = 0
    #: Delay of the first attempt after acceptance.
    delay_ms: int = 0
    max_attempts: int = 1
    #: How many of its attempts fail on purpose, for the reason `BY_REQUEST`.
    fails: int = 0


class JobSnapshot(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One job as a response shows it."""

    id: str
    state: int
    name: str = ""
    attempts: int = 0
    #: The output: the `run` of the attempt that counted. Empty: there is no result, or it was not requested.
    run: str = ""
    reason: str = ""


class _Record(msgspec.Struct, frozen=True, tag_field="record", omit_defaults=True, forbid_unknown_fields=True):
    """One line; unknown fields are refused, because they would not be checked."""


class Asked(_Record, frozen=True, tag="asked"):
    """A client is about to send a call; `op` is unique in the run."""

    at_us: Instant
    op: str
    client: str
    #: submit, get, result, cancel, retry, list, pause, resume, schedule, …
    call: str
    #: grpc, http or direct.
    via: str
    #: Only for a submit.
    wanted: list[JobSpec] = []
    #: For all other calls.
    job_id: str = ""
    #: How long the client waits for a response; 0: not checked.
    deadline_ms: int = 0


class Answered(_Record, frozen=True, tag="answered"):
    """The call succeeded. For a submit: an id for each job, or an empty one with the reason of its refusal.

    An empty id without a reason is unknown, like a call without a response. For a retry: the id of the new job, which
    has the name of the old one.
    """

    at_us: Instant
    op: str
    ids: list[str] = []
    #: By index.
    refusals: dict[int, str] = {}
    #: The indexes of jobs that existed before.
    existing: list[int] = []
    #: For get, result, cancel, and list.
    seen: list[JobSnapshot] = []


class Refused(_Record, frozen=True, tag="refused"):
    """The call was refused: an error that means that it had no effect, and never will."""

    at_us: Instant
    op: str
    code: str
    reason: str = ""


class Lost(_Record, frozen=True, tag="lost"):
    """The outcome of the call is unknown: no response, or UNAVAILABLE or DEADLINE_EXCEEDED."""

    at_us: Instant
    op: str
    code: str = ""
    #: Whether the response had a retry hint.
    has_hint: bool = False


class Began(_Record, frozen=True, tag="began"):
    """A worker has begun an attempt; `run` is unique, and a successful attempt returns it."""

    at_us: Instant
    run: str
    job_id: str
    #: The token of the lease; it only grows for one job.
    token: int
    worker: str
    attempt: int = 0
    #: The machine's wall clock; 0 if unknown. Not compared in runs with clock faults.
    wall_ms: int = 0


class Ended(_Record, frozen=True, tag="ended"):
    """The function returned, raised, or was interrupted; the outcome of the report is not known here."""

    at_us: Instant
    run: str
    #: done, failed or interrupted.
    outcome: str


class Broken(_Record, frozen=True, tag="broken"):
    """A fault that was fired: `kind` is its name, `target` the affected processes."""

    at_us: Instant
    until_us: Instant
    kind: str
    target: str = ""
    note: str = ""


# -- facts: the state of the store at the end


class JobFact(_Record, frozen=True, tag="job"):
    """A job that exists."""

    id: str
    name: str
    state: int
    type: str = ""
    queue: str = ""
    priority: int = 0
    #: Its position in the order of submits, if the store keeps one; comparable within `store`.
    number: int = 0
    #: The store: a node, a database.
    store: str = ""
    key: str = ""
    not_before_ms: int = 0
    created_ms: int = 0
    #: The number of its grants; 0 if that is not kept.
    grants: int = 0
    #: The token of its result; 0 if it has none, or if that is not kept.
    token: int = 0
    run: str = ""
    #: The schedule that created it, if any.
    schedule: str = ""
    #: The original job, if a retry created it.
    retry_of: str = ""
    #: Why it failed, if that is kept.
    reason: str = ""


class GrantFact(_Record, frozen=True, tag="grant"):
    """A lease that was granted; `place` orders all grants of one store, `at_ms` is by the store's clock."""

    job_id: str
    token: int
    place: int
    store: str = ""
    at_ms: int = 0


class EndFact(_Record, frozen=True, tag="end"):
    """A terminal result that was accepted; a job has only one."""

    job_id: str
    state: int
    token: int = 0
    #: In the same order as the places of grants; 0 if that is not kept.
    place: int = 0


class TickFact(_Record, frozen=True, tag="tick"):
    """The outcome of one tick of a schedule: `outcome` is fired, skipped, missed or triggered."""

    schedule: str
    tick_ms: int
    outcome: str
    job_id: str = ""
    #: How many neighbouring ticks, before or after, the store shows as passed over together with this one.
    passed: int = 0


class DamageFact(_Record, frozen=True, tag="damage"):
    """Damage that was found while reading the store."""

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
    """The parameters of a run, and what had to happen for the run to prove anything."""

    topology: str
    seed: int
    #: The enabled faults; each has to be fired.
    faults: list[str] = []
    #: Faults and calls that were left out, and why.
    left_out: dict[str, str] = {}
    #: The calls that clients made; each has to succeed at least once.
    calls: list[str] = []
    #: The data that the store keeps: grants, order, ticks. Rules that need missing data are not offered.
    keeps: list[str] = []
    #: Results are stored apart from states: a job with a stored result may be granted again before its state changes.
    results_apart: bool = False
    schedules: list[Schedule] = []
    #: The interfaces: grpc, http; empty: both. If one is missing, they are not compared, and the rule is not offered.
    interfaces: list[str] = []
    begun_us: Instant = 0
    faults_ended_us: Instant = 0
    #: When every job had ended; 0: not within the bound.
    drained_us: Instant = 0
    drain_bound_s: float = 0.0
    #: How many journal files were removed during the run because of their age.
    trimmed: int = 0
    version: str = ""
    command: str = ""
