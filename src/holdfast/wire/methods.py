"""The methods of the wire: names, requests and responses, for both ends."""

from typing import Any, Generic, TypeVar

import msgspec

from holdfast.core.capabilities import Capabilities
from holdfast.core.commands import CancelReply, Submitted
from holdfast.core.history import Entry
from holdfast.core.model import QueueMode, ScheduleSpec, Template
from holdfast.ports import (
    Explanation,
    FeedPart,
    JobDraft,
    JobQuery,
    JobView,
    QueueView,
    ResultView,
    ScheduleView,
    SearchPage,
    Stats,
    WorkerView,
)

Q = TypeVar("Q")
R = TypeVar("R")


class Request(msgspec.Struct, frozen=True, array_like=True):
    """The base of requests, and the request of methods without arguments."""


class Submission(Request, frozen=True, array_like=True):
    """Jobs to submit."""

    templates: list[Template]
    drafts: list[JobDraft]


class OneJob(Request, frozen=True, array_like=True):
    """One job, by its id."""

    job_id: str


class JobCancel(Request, frozen=True, array_like=True):
    """The cancel of a job."""

    job_id: str
    reason: str = ""


class JobRetry(Request, frozen=True, array_like=True):
    """A retry of an ended job."""

    job_id: str
    request_id: str = ""


class JobSearch(Request, frozen=True, array_like=True):
    """A search for jobs."""

    query: JobQuery
    cursor: str
    size: int


class FeedStart(Request, frozen=True, array_like=True):
    """The position after which the feed starts; None: from now on."""

    after: int | None


class QueueChange(Request, frozen=True, array_like=True):
    """The new mode of a queue."""

    queue: str
    mode: QueueMode
    reason: str = ""


class QueuePurge(Request, frozen=True, array_like=True):
    """A queue whose waiting jobs are canceled."""

    queue: str
    reason: str = ""


class OneWorker(Request, frozen=True, array_like=True):
    """One worker, by its id."""

    worker_id: str


class OneSchedule(Request, frozen=True, array_like=True):
    """One schedule, by its name."""

    name: str


class ScheduleChange(Request, frozen=True, array_like=True):
    """The definition of a schedule."""

    spec: ScheduleSpec


class SchedulePause(Request, frozen=True, array_like=True):
    """Whether a schedule is paused."""

    name: str
    is_paused: bool


class SchedulePreview(Request, frozen=True, array_like=True):
    """The ticks of a schedule that need not exist."""

    spec: ScheduleSpec
    after_ms: int
    count: int


class WireMethod(Generic[Q, R]):
    """One method: its name, and the types of its request and its response or stream items."""

    __slots__ = ("decode_request", "decode_response", "is_stream", "name")

    def __init__(self, name: str, request: type[Q], response: Any, *, is_stream: bool = False) -> None:  # noqa: ANN401 - a type expression
        self.name = name
        self.is_stream = is_stream
        self.decode_request = msgspec.msgpack.Decoder(request).decode
        self.decode_response = msgspec.msgpack.Decoder(response).decode

    def __repr__(self) -> str:
        return f"<WireMethod {self.name}>"


NOTHING = Request()

SUBMIT: WireMethod[Submission, Submitted] = WireMethod("jobs.submit", Submission, Submitted)
GET: WireMethod[OneJob, JobView] = WireMethod("jobs.get", OneJob, JobView)
RESULT: WireMethod[OneJob, ResultView] = WireMethod("jobs.result", OneJob, ResultView)
PAYLOAD: WireMethod[OneJob, bytes] = WireMethod("jobs.payload", OneJob, bytes)
EXPLAIN: WireMethod[OneJob, Explanation] = WireMethod("jobs.explain", OneJob, Explanation)
FIND: WireMethod[JobSearch, SearchPage] = WireMethod("jobs.find", JobSearch, SearchPage)
SETTLED: WireMethod[OneJob, tuple[JobView, ResultView]] = WireMethod("jobs.settled", OneJob, tuple[JobView, ResultView])
WATCH: WireMethod[OneJob, JobView] = WireMethod("jobs.watch", OneJob, JobView, is_stream=True)
CANCEL: WireMethod[JobCancel, CancelReply] = WireMethod("jobs.cancel", JobCancel, CancelReply)
RETRY: WireMethod[JobRetry, str] = WireMethod("jobs.retry", JobRetry, str)
HISTORY: WireMethod[OneJob, list[Entry]] = WireMethod("jobs.history", OneJob, list[Entry])
FEED: WireMethod[FeedStart, FeedPart] = WireMethod("feed", FeedStart, FeedPart, is_stream=True)

CAPABILITIES: WireMethod[Request, Capabilities] = WireMethod("capabilities", Request, Capabilities)
STATS: WireMethod[Request, Stats] = WireMethod("admin.stats", Request, Stats)
QUEUES: WireMethod[Request, list[QueueView]] = WireMethod("admin.queues", Request, list[QueueView])
SET_QUEUE_MODE: WireMethod[QueueChange, None] = WireMethod("admin.set_queue_mode", QueueChange, None)
PURGE: WireMethod[QueuePurge, int] = WireMethod("admin.purge", QueuePurge, int)
WORKERS: WireMethod[Request, list[WorkerView]] = WireMethod("admin.workers", Request, list[WorkerView])
DRAIN_WORKER: WireMethod[OneWorker, None] = WireMethod("admin.drain_worker", OneWorker, None)

SET_SCHEDULE: WireMethod[ScheduleChange, ScheduleView] = WireMethod("schedules.set", ScheduleChange, ScheduleView)
GET_SCHEDULE: WireMethod[OneSchedule, ScheduleView] = WireMethod("schedules.get", OneSchedule, ScheduleView)
SCHEDULES: WireMethod[Request, list[ScheduleView]] = WireMethod("schedules.all", Request, list[ScheduleView])
DELETE_SCHEDULE: WireMethod[OneSchedule, None] = WireMethod("schedules.delete", OneSchedule, None)
PAUSE_SCHEDULE: WireMethod[SchedulePause, ScheduleView] = WireMethod("schedules.pause", SchedulePause, ScheduleView)
TRIGGER_SCHEDULE: WireMethod[OneSchedule, str] = WireMethod("schedules.trigger", OneSchedule, str)
PREVIEW_SCHEDULE: WireMethod[SchedulePreview, list[int]] = WireMethod("schedules.preview", SchedulePreview, list[int])
