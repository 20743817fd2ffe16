"""Every method for clients once, in a table; gRPC, conversations and the socket of a directory all use it.

A handler takes the request and gives the response, or, for a stream, an asynchronous iterator of them. It raises
`HoldfastError` for what it refuses.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from google.protobuf.message import Message

from holdfast.core.trace_context import TraceContext
from holdfast.proto import holdfast_pb2 as pb
from holdfast.proto import taskqueue_public_pb2 as public_pb
from holdfast.server.auth.permissions import Scope
from holdfast.server.backend import Backend
from holdfast.server.calls.admin import AdminCalls
from holdfast.server.calls.jobs import JobCalls
from holdfast.server.calls.schedules import ScheduleCalls
from holdfast.server.request_values import carry


class Method(msgspec.Struct, frozen=True):
    """One row of the table."""

    name: str
    #: What a caller needs for it.
    scope: Scope
    request: type[Message]
    handler: Callable[[Any], Any]
    is_stream: bool = False
    #: Takes the context that came with a request over, where jobs are made.
    carry: Callable[[Any, TraceContext], None] | None = None


Table = Mapping[str, Method]


def table(backend: Backend) -> Table:
    """The methods by their names on the wire, such as `JobService/SubmitJobs`."""
    jobs, admin, schedules = JobCalls(backend), AdminCalls(backend), ScheduleCalls(backend)
    rows = {
        "JobService": (
            Method("SubmitJobs", Scope.SUBMIT, pb.SubmitJobsRequest, jobs.submit, carry=carry),
            Method("ExplainJob", Scope.READ, pb.ExplainJobRequest, jobs.explain),
            Method("GetJob", Scope.READ, pb.GetJobRequest, jobs.get),
            Method("FindJobs", Scope.READ, pb.FindJobsRequest, jobs.find),
            Method("AwaitJob", Scope.READ, pb.AwaitJobRequest, jobs.wait),
            Method("WatchJob", Scope.READ, pb.WatchJobRequest, jobs.watch, is_stream=True),
            Method("CancelJob", Scope.SUBMIT, public_pb.CancelJobRequest, jobs.cancel),
            Method("RetryJob", Scope.SUBMIT, pb.RetryJobRequest, jobs.retry),
            Method("GetHistory", Scope.READ, pb.GetHistoryRequest, jobs.history),
            Method("Feed", Scope.READ, pb.FeedRequest, jobs.feed, is_stream=True),
        ),
        "AdminService": (
            Method("GetStats", Scope.READ, pb.GetStatsRequest, admin.stats),
            Method("ListQueues", Scope.READ, pb.ListQueuesRequest, admin.queues),
            Method("SetQueueMode", Scope.ADMIN, pb.SetQueueModeRequest, admin.set_mode),
            Method("PurgeQueue", Scope.ADMIN, pb.PurgeQueueRequest, admin.purge),
            Method("ListWorkers", Scope.READ, pb.ListWorkersRequest, admin.workers),
            Method("DrainWorker", Scope.ADMIN, pb.DrainWorkerRequest, admin.drain),
            Method("GetCapabilities", Scope.READ, pb.GetCapabilitiesRequest, admin.capabilities),
        ),
        "ScheduleService": (
            Method("SetSchedule", Scope.ADMIN, pb.ScheduleSpec, schedules.set),
            Method("GetSchedule", Scope.READ, pb.GetScheduleRequest, schedules.get),
            Method("ListSchedules", Scope.READ, pb.ListSchedulesRequest, schedules.all),
            Method("DeleteSchedule", Scope.ADMIN, pb.DeleteScheduleRequest, schedules.delete),
            Method("PauseSchedule", Scope.ADMIN, pb.PauseScheduleRequest, schedules.pause),
            Method("TriggerSchedule", Scope.ADMIN, pb.TriggerScheduleRequest, schedules.trigger),
            Method("PreviewSchedule", Scope.READ, pb.PreviewScheduleRequest, schedules.preview),
        ),
    }
    return {f"{service}/{method.name}": method for service, methods in rows.items() for method in methods}
