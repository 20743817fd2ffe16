"""Every method for clients once, in a table; gRPC, conversations and the socket of a directory all use it.

A handler takes the request and gives the response, or, for a stream, an asynchronous iterator of them. It raises
`HoldfastError` for what it refuses.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from google.protobuf.message import Message

from holdfast.gateway.backend import Backend
from holdfast.gateway.calls.admin import AdminCalls
from holdfast.gateway.calls.jobs import JobCalls
from holdfast.gateway.calls.schedules import ScheduleCalls
from holdfast.proto import holdfast_pb2 as pb
from holdfast.proto import taskqueue_public_pb2 as public_pb


class Method(msgspec.Struct, frozen=True):
    """One row of the table."""

    name: str
    request: type[Message]
    handler: Callable[[Any], Any]
    is_stream: bool = False


Table = Mapping[str, Method]


def table(backend: Backend) -> Table:
    """The methods by their names on the wire, such as `JobService/SubmitJobs`."""
    jobs, admin, schedules = JobCalls(backend), AdminCalls(backend), ScheduleCalls(backend)
    rows = {
        "JobService": (
            Method("SubmitJobs", pb.SubmitJobsRequest, jobs.submit),
            Method("ExplainJob", pb.ExplainJobRequest, jobs.explain),
            Method("GetJob", pb.GetJobRequest, jobs.get),
            Method("FindJobs", pb.FindJobsRequest, jobs.find),
            Method("AwaitJob", pb.AwaitJobRequest, jobs.wait),
            Method("WatchJob", pb.WatchJobRequest, jobs.watch, is_stream=True),
            Method("CancelJob", public_pb.CancelJobRequest, jobs.cancel),
            Method("RetryJob", pb.RetryJobRequest, jobs.retry),
            Method("GetHistory", pb.GetHistoryRequest, jobs.history),
            Method("Feed", pb.FeedRequest, jobs.feed, is_stream=True),
        ),
        "AdminService": (
            Method("GetStats", pb.GetStatsRequest, admin.stats),
            Method("ListQueues", pb.ListQueuesRequest, admin.queues),
            Method("SetQueueMode", pb.SetQueueModeRequest, admin.set_mode),
            Method("PurgeQueue", pb.PurgeQueueRequest, admin.purge),
            Method("ListWorkers", pb.ListWorkersRequest, admin.workers),
            Method("DrainWorker", pb.DrainWorkerRequest, admin.drain),
        ),
        "ScheduleService": (
            Method("SetSchedule", pb.ScheduleSpec, schedules.set),
            Method("GetSchedule", pb.GetScheduleRequest, schedules.get),
            Method("ListSchedules", pb.ListSchedulesRequest, schedules.all),
            Method("DeleteSchedule", pb.DeleteScheduleRequest, schedules.delete),
            Method("PauseSchedule", pb.PauseScheduleRequest, schedules.pause),
            Method("TriggerSchedule", pb.TriggerScheduleRequest, schedules.trigger),
            Method("PreviewSchedule", pb.PreviewScheduleRequest, schedules.preview),
        ),
    }
    return {f"{service}/{method.name}": method for service, methods in rows.items() for method in methods}
