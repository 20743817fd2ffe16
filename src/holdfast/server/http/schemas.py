"""The JSON of jobs in requests and responses. Times are milliseconds since 1970, 0 if there is none."""

import base64
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from holdfast import limits
from holdfast.core.history import Attempt, Entry
from holdfast.core.lifecycle import TERMINAL
from holdfast.core.model import Extra
from holdfast.ports import Explanation, JobView, ResultView
from holdfast.server.attempts import JobAttempts
from holdfast.server.http.problems import Problem
from holdfast.server.http.strict_json import is_json

Name = Annotated[str, Meta(pattern=rf"^{limits.NAME_PATTERN}$")]
Status = Literal["QUEUED", "RUNNING", "DONE", "FAILED", "CANCELED"]
Seconds = Annotated[float, Meta(ge=0, le=limits.DELAY_MS_MAX // 1_000)]
#: An instant: ISO 8601 with its offset, or milliseconds since 1970.
Instant = Annotated[str, Meta(min_length=1, max_length=64)] | Annotated[int, Meta(ge=0, le=253_402_300_799_999)]
Text = Annotated[str, Meta(max_length=limits.LABEL_VALUE_CHARS_MAX)]
Words = Annotated[str, Meta(max_length=limits.REASON_CHARS_MAX)]
Labels = Annotated[
    dict[Annotated[str, Meta(min_length=1, max_length=limits.LABEL_KEY_CHARS_MAX)], Text],
    Meta(max_length=limits.LABELS_MAX),
]
Key = Annotated[str, Meta(max_length=limits.REQUEST_ID_CHARS_MAX)]


class BackoffBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The wait of a failed job before its retry."""

    kind: Literal["fixed", "exponential", "quadratic"] = "exponential"
    base_s: Annotated[float, Meta(ge=0, le=limits.BACKOFF_MS_MAX // 1_000)] = 1.0
    max_s: Annotated[float, Meta(ge=0, le=limits.BACKOFF_MS_MAX // 1_000)] = limits.BACKOFF_MS_MAX / 1_000


class KindBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The common fields of jobs of one kind."""

    type: Name
    queue: Name = limits.QUEUE_DEFAULT
    priority: Annotated[int, Meta(ge=limits.PRIORITY_MIN, le=limits.PRIORITY_MAX)] = limits.PRIORITY_DEFAULT
    max_attempts: Annotated[int, Meta(ge=1, le=limits.ATTEMPTS_MAX)] = limits.ATTEMPTS_DEFAULT
    max_losses: Annotated[int, Meta(ge=0, le=limits.LOSSES_MAX)] = limits.LOSSES_DEFAULT
    timeout_s: Annotated[float, Meta(ge=0, le=limits.TIMEOUT_MS_MAX // 1_000)] = 0
    backoff: BackoffBody | None = None
    labels: Labels = {}


class JobBody(KindBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A job to submit. `payload` has the arguments of its function: an object by name, or an array in order."""

    payload: Any = msgspec.UNSET
    delay_s: Seconds = 0
    not_before: Instant | None = None
    unique_key: Key = ""
    request_id: Key = ""
    headers: Labels = {}


class JobsBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Several jobs to submit as one event; jobs that cannot be accepted are refused individually."""

    jobs: Annotated[list[JobBody], Meta(min_length=1, max_length=limits.BATCH_JOBS_MAX)]


class ReasonBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The reason for a change."""

    reason: Words = ""


class Accepted(msgspec.Struct, frozen=True):
    """A durable job. `existing`: it was submitted before, with the same key."""

    id: str
    status: Status
    type: str
    queue: str
    priority: int
    accepted_at_ms: int
    existing: bool = False


class AcceptedOrNot(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome for one job of several: its id and status, or its problem."""

    id: str = ""
    status: Status | Literal[""] = ""
    existing: bool = False
    problem: Problem | None = None


class AcceptedJobs(msgspec.Struct, frozen=True):
    """The outcomes for all jobs, in the order of the request."""

    jobs: list[AcceptedOrNot]
    accepted: int
    refused: int
    accepted_at_ms: int


class ProgressPart(msgspec.Struct, frozen=True):
    """The progress of a running job; `permille` is -1 if the job does not report it."""

    permille: int
    message: str
    at_ms: int


class JobResource(msgspec.Struct, frozen=True, kw_only=True):
    """A job at one instant."""

    id: str
    status: Status
    type: str
    queue: str
    priority: int
    created_at_ms: int
    started_at_ms: int
    finished_at_ms: int
    not_before_ms: int
    attempts: int
    max_attempts: int
    max_losses: int
    failures: int
    losses: int
    timeout_s: float
    cancel_requested: bool
    failure_reason: str
    worker_id: str
    progress: ProgressPart | None
    request_id: str
    unique_key: str
    retry_of: str
    labels: dict[str, str]
    headers: dict[str, str]


class WholeJob(JobResource, frozen=True, kw_only=True):
    """A job with its payload; bytes that are not JSON are in `payload_base64` instead."""

    payload: Any = None
    payload_base64: str | None = None


class Jobs(msgspec.Struct, frozen=True):
    """Some jobs, and the cursor for the next page; an empty cursor means that there are no more."""

    jobs: list[JobResource]
    next_cursor: str


class ResultResource(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a job; `ready` is false until it has ended. Output that is not JSON is in `output_base64`."""

    id: str
    ready: bool
    status: Status
    output: Any = None
    output_base64: str | None = None
    summary: str = ""
    failure_reason: str = ""
    runtime_ms: int = 0


class Canceled(msgspec.Struct, frozen=True):
    """The job's current status: a queued job is CANCELED, a running one is requested to stop."""

    id: str
    status: Status
    was_terminal: bool


class Happened(msgspec.Struct, frozen=True):
    """One event of one job; `status` is the status after it, empty if it did not change."""

    position: int
    at_ms: int
    job_id: str
    what: str
    status: str
    worker_id: str
    token: int
    reason: str
    #: The traceback of a failed attempt, in the history of one job; the feed of all jobs omits it.
    detail: str = ""


class AttemptPart(msgspec.Struct, frozen=True):
    """One attempt of a job; `detail` is the traceback if it failed."""

    number: int
    outcome: Literal["RUNNING", "DONE", "FAILED", "CANCELED", "LOST"]
    worker_id: str
    token: int
    started_at_ms: int
    ended_at_ms: int
    reason: str
    detail: str


class Attempts(msgspec.Struct, frozen=True):
    """The attempts of a job, oldest first; if earlier ones are missing, `missing` says why."""

    id: str
    attempts: list[AttemptPart]
    missing: str


class History(msgspec.Struct, frozen=True):
    """All events of a job, oldest first, and its attempts, as in `Attempts`."""

    id: str
    entries: list[Happened]
    attempts: list[AttemptPart]
    missing: str


class Why(msgspec.Struct, frozen=True):
    """The explanation of a job's current state: a stable reason and a sentence."""

    id: str
    status: Status
    reason: str
    explanation: str


def job_fields(view: JobView) -> dict[str, Any]:
    """Returns the fields of a job in a listing."""
    template, extra, progress = view.template, view.extra or _NO_EXTRA, view.progress
    return {
        "id": view.id,
        "status": view.state.name,
        "type": template.type,
        "queue": template.queue,
        "priority": template.priority,
        "created_at_ms": view.created_ms,
        "started_at_ms": view.started_ms,
        "finished_at_ms": view.finished_ms,
        "not_before_ms": view.not_before_ms,
        "attempts": view.attempts,
        "max_attempts": template.max_attempts,
        "max_losses": template.max_losses,
        "failures": view.failures,
        "losses": view.losses,
        "timeout_s": template.timeout_ms / 1_000,
        "cancel_requested": view.cancel_requested,
        "failure_reason": view.failure_reason,
        "worker_id": view.worker,
        "progress": progress and ProgressPart(progress.permille, progress.message, progress.at_ms),
        "request_id": extra.request_id,
        "unique_key": extra.unique_key,
        "retry_of": extra.retry_of,
        "labels": dict(extra.labels),
        "headers": dict(extra.headers),
    }


_NO_EXTRA = Extra()


def job_shape(view: JobView) -> JobResource:
    """Converts a job for a listing."""
    return JobResource(**job_fields(view))


def whole_job(view: JobView, payload: bytes) -> WholeJob:
    """Converts a job with its payload."""
    return WholeJob(**job_fields(view), **_data("payload", payload))


def result_shape(view: JobView, result: ResultView) -> ResultResource:
    """Converts the result of a job, if there is one."""
    if result.state not in TERMINAL:
        return ResultResource(id=view.id, ready=False, status=_status(result))
    return ResultResource(
        id=view.id,
        ready=True,
        status=_status(result),
        summary=result.summary,
        failure_reason=view.failure_reason,
        runtime_ms=result.runtime_ms,
        **_data("output", result.output),
    )


def _status(result: ResultView) -> Status:
    name: Any = result.state.name
    return name  # type: ignore[no-any-return]  # the five names are those of the five states


def _data(name: str, data: bytes) -> dict[str, Any]:
    """Returns bytes of a job as JSON, or in base64 if they are not JSON."""
    if not data:
        return {name: None}
    if is_json(data):
        return {name: msgspec.Raw(data)}
    return {f"{name}_base64": base64.b64encode(data).decode()}


def shown(data: bytes) -> Any:  # noqa: ANN401 - any JSON
    """Returns bytes of a schedule as JSON, or as base64 text if they are not JSON."""
    if not data:
        return None
    return msgspec.Raw(data) if is_json(data) else base64.b64encode(data).decode()


def happened(entry: Entry) -> Happened:
    """Converts one event."""
    return Happened(
        entry.position,
        entry.at_ms,
        entry.job_id,
        entry.what,
        entry.state,
        entry.worker,
        entry.token,
        entry.reason,
        entry.detail,
    )


def history_shape(job_id: str, entries: Sequence[Entry], found: JobAttempts) -> History:
    """Converts the events and the attempts of a job."""
    return History(job_id, [happened(one) for one in entries], [_attempt(one) for one in found.attempts], found.missing)


def attempts_shape(job_id: str, found: JobAttempts) -> Attempts:
    """Converts the attempts of a job."""
    return Attempts(job_id, [_attempt(one) for one in found.attempts], found.missing)


def _attempt(one: Attempt) -> AttemptPart:
    outcome: Any = one.outcome
    return AttemptPart(one.number, outcome, one.worker, one.token, one.started_ms, one.ended_ms, one.reason, one.detail)


def why_shape(job_id: str, explanation: Explanation) -> Why:
    """Converts the explanation of a job's current state."""
    status: Any = explanation.state.name
    return Why(job_id, status, explanation.reason, explanation.sentence)
