"""Converts records of the job service to messages, which share no data with the record."""

from holdfast.core.lifecycle import FAILED, RUNNING
from holdfast.core.model import Extra, JobRecord
from holdfast.ports import JobDraft
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.proto import taskqueue_public_pb2 as public_pb
from holdfast.proto.enums import job_status
from holdfast.server.grpc.internal_messages import options_message, spec_message
from holdfast.topologies.microservices.state.records import Records


def summary_message(job: JobRecord) -> public_pb.JobSummary:
    """Returns one line of a listing."""
    return public_pb.JobSummary(
        job_id=job.id,
        status=job_status(job.state),
        job_type=job.template.type,
        created_at_ms=job.created_ms,
        started_at_ms=job.started_ms,
        finished_at_ms=job.finished_ms,
        cancel_requested=job.cancel_requested,
    )


def record_message(records: Records, job: JobRecord, now_ms: int, *, has_payload: bool) -> pb.GetJobRecordResponse:
    """Returns all data of a job at this time; the due time is the current one and includes the delay."""
    result = job.result
    draft = JobDraft(payload=job.payload if has_payload else b"", not_before_ms=job.not_before_ms, extra=job.extra)
    return pb.GetJobRecordResponse(
        summary=summary_message(job),
        failure_reason=result.failure_reason if result is not None and job.state == FAILED else "",
        spec=spec_message(job.template, job.extra or Extra()),
        options=options_message(job.template, draft, 0),
        token=job.token,
        worker_id=records.workers.get(job.id, "") if job.state == RUNNING else "",
        attempts=job.attempts,
        failures=job.failed_attempts,
        losses=job.losses,
        order=job.number,
        cancel_reason=job.cancel_reason or (result.summary if result is not None else ""),
        client_request_id=job.request_id,
        grants=job.grants,
        now_ms=now_ms,
    )
