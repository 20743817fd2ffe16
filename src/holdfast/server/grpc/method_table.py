"""The table of all methods of `holdfast.v1` for clients: plain calls and calls of a `Converse` stream share it.

A handler takes the request and returns the response or, for a stream, an asynchronous iterator of responses. It raises
`HoldfastError` to refuse a request.
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
from holdfast.server.grpc.admin_methods import AdminCalls
from holdfast.server.grpc.job_methods import JobCalls
from holdfast.server.grpc.requests import carry
from holdfast.server.grpc.schedule_methods import ScheduleCalls


class CallMethod(msgspec.Struct, frozen=True):
    """One row of the table."""

    name: str
    #: The scope that a caller needs.
    scope: Scope
    request: type[Message]
    handler: Callable[[Any], Any]
    is_stream: bool = False
    #: For methods that create jobs: adds the trace context of a request to them.
    carry: Callable[[Any, TraceContext], None] | None = None


Table = Mapping[str, CallMethod]


def table(backend: Backend) -> Table:
    """Returns the methods by their names on the wire, such as `JobService/SubmitJobs`."""
    jobs, admin, schedules = JobCalls(backend), AdminCalls(backend), ScheduleCalls(backend)
    rows = {
        "JobService": (
            CallMethod("SubmitJobs", Scope.SUBMIT, pb.SubmitJobsRequest, jobs.submit, carry=carry),
            CallMethod("ExplainJob", Scope.READ, pb.ExplainJobRequest, jobs.explain),
            CallMethod("GetJob", Scope.READ, pb.GetJobRequest, jobs.get),
            CallMethod("FindJobs", Scope.READ, pb.FindJobsRequest, jobs.find),
            CallMethod("AwaitJob", Scope.READ, pb.AwaitJobRequest, jobs.wait),
            CallMethod("WatchJob", Scope.READ, pb.WatchJobRequest, jobs.watch, is_stream=True),
            CallMethod("CancelJob", Scope.SUBMIT, public_pb.CancelJobRequest, jobs.cancel),
            CallMethod("RetryJob", Scope.SUBMIT, pb.RetryJobRequest, jobs.retry),
            CallMethod("GetHistory", Scope.READ, pb.GetHistoryRequest, jobs.history),
            CallMethod("Feed", Scope.READ, pb.FeedRequest, jobs.feed, is_stream=True),
        ),
        "AdminService": (
            CallMethod("GetStats", Scope.READ, pb.GetStatsRequest, admin.stats),
            CallMethod("ListQueues", Scope.READ, pb.ListQueuesRequest, admin.queues),
            CallMethod("SetQueueMode", Scope.ADMIN, pb.SetQueueModeRequest, admin.set_mode),
            CallMethod("PurgeQueue", Scope.ADMIN, pb.PurgeQueueRequest, admin.purge),
            CallMethod("ListWorkers", Scope.READ, pb.ListWorkersRequest, admin.workers),
            CallMethod("DrainWorker", Scope.ADMIN, pb.DrainWorkerRequest, admin.drain),
            CallMethod("GetCapabilities", Scope.READ, pb.GetCapabilitiesRequest, admin.capabilities),
        ),
        "ScheduleService": (
            CallMethod("SetSchedule", Scope.ADMIN, pb.ScheduleSpec, schedules.set),
            CallMethod("GetSchedule", Scope.READ, pb.GetScheduleRequest, schedules.get),
            CallMethod("ListSchedules", Scope.READ, pb.ListSchedulesRequest, schedules.all),
            CallMethod("DeleteSchedule", Scope.ADMIN, pb.DeleteScheduleRequest, schedules.delete),
            CallMethod("PauseSchedule", Scope.ADMIN, pb.PauseScheduleRequest, schedules.pause),
            CallMethod("TriggerSchedule", Scope.ADMIN, pb.TriggerScheduleRequest, schedules.trigger),
            CallMethod("PreviewSchedule", Scope.READ, pb.PreviewScheduleRequest, schedules.preview),
        ),
    }
    return {f"{service}/{method.name}": method for service, methods in rows.items() for method in methods}
