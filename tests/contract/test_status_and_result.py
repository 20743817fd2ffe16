"""GetJobStatus and GetJobResult: what a job looks like in each state."""

import hashlib
import time
from typing import Any

import grpc
import pytest

from holdfast.proto import taskqueue_internal_pb2 as internal
from holdfast.proto import taskqueue_public_pb2 as public
from tests.contract.served import Served
from tests.e2e.waiting import eventually
from tests.e2e.wire import Wire, refusal

EMPTY_SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
OUTPUT_BYTES_MAX = 262_144
NO_JOB = "00000000-0000-4000-8000-000000000000"
#: So much may lie between two clocks of one machine: a server's never goes back, and follows no correction.
CLOCKS_MS = 1_000


def running(wire: Wire, worker: str = "w", **spec: object) -> internal.FetchWorkResponse:
    """A new job in the hands of a worker; everything older is canceled, so that it is the next."""
    for job in wire.all_jobs(public.QUEUED):
        wire.cancel(job.job_id)
    job_id = wire.new(**spec)
    assigned = wire.fetch(worker)
    assert (assigned.assigned, assigned.job_id) == (True, job_id)
    return assigned


def fetched(wire: Wire, worker: str) -> internal.FetchWorkResponse:
    """The next job; one that was taken away is QUEUED a moment before it can be fetched again."""
    return eventually(lambda: wire.fetch(worker), lambda work: work.assigned)


def finished(wire: Wire, outcome: int, **fields: object) -> str:
    """A job that a worker has reported on."""
    assigned = running(wire)
    assert wire.report("w", assigned.job_id, outcome, token=assigned.token, **fields)
    return assigned.job_id


def test_queued_job_has_only_its_creation_time(wire: Wire) -> None:
    """What has not happened yet has the time 0, and there is neither a cancel nor a failure."""
    job = wire.status(wire.new())
    assert (job.status, job.cancel_requested, job.failure_reason) == (public.QUEUED, False, "")
    assert job.created_at_ms > 0
    assert (job.started_at_ms, job.finished_at_ms) == (0, 0)


def test_handing_out_makes_a_job_running_and_stamps_its_start(wire: Wire) -> None:
    """A job in a worker's hands is RUNNING, with a start not before its creation and no end."""
    job = wire.status(running(wire).job_id)
    assert job.status == public.RUNNING
    assert job.started_at_ms >= job.created_at_ms
    assert job.finished_at_ms == 0


def test_end_is_stamped_when_the_outcome_is_accepted(wire: Wire) -> None:
    """A finished job has three times in their order."""
    job = wire.status(finished(wire, public.JOB_OUTCOME_SUCCEEDED))
    assert job.status == public.DONE
    assert 0 < job.created_at_ms <= job.started_at_ms <= job.finished_at_ms


def test_times_are_utc_milliseconds_of_the_server(wire: Wire) -> None:
    """A creation time lies between the instants before and after the call on the same machine."""
    before_ms = time.time_ns() // 1_000_000
    job = wire.status(wire.new())
    assert before_ms - CLOCKS_MS <= job.created_at_ms <= time.time_ns() // 1_000_000 + CLOCKS_MS


@pytest.mark.parametrize("state", ["queued", "running"])
def test_result_before_the_end_is_not_ready_and_no_error(wire: Wire, state: str) -> None:
    """Before the end the answer is OK, not ready, of unspecified status and otherwise empty."""
    job_id = wire.new() if state == "queued" else running(wire).job_id
    assert wire.result(job_id) == public.GetJobResultResponse(job_id=job_id)


def test_success_has_output_runtime_and_checksum(wire: Wire) -> None:
    """DONE gives back the output and runtime as reported, with the output's SHA-256 in lowercase hex."""
    fields: dict[str, Any] = {"output_bytes": b"\0output\xff", "output_summary": "fine", "runtime_ms": 12}
    job_id = finished(wire, public.JOB_OUTCOME_SUCCEEDED, **fields, checksum="a worker may say anything")
    checksum = hashlib.sha256(b"\0output\xff").hexdigest()
    expected = public.GetJobResultResponse(
        job_id=job_id, result_ready=True, terminal_status=public.DONE, checksum=checksum, **fields
    )
    assert wire.result(job_id) == expected


def test_checksum_of_empty_output_is_there_too(wire: Wire) -> None:
    """Without output the checksum is that of no bytes."""
    result = wire.result(finished(wire, public.JOB_OUTCOME_SUCCEEDED))
    assert (result.result_ready, result.output_bytes, result.checksum) == (True, b"", EMPTY_SHA256)


def test_failure_tells_its_reason_in_status_and_summary(wire: Wire) -> None:
    """FAILED is ready, and both the status and the summary say why."""
    job_id = finished(wire, public.JOB_OUTCOME_FAILED, failure_reason="no luck", runtime_ms=3)
    result = wire.result(job_id)
    assert (wire.status(job_id).status, wire.status(job_id).failure_reason) == (public.FAILED, "no luck")
    assert (result.result_ready, result.terminal_status) == (True, public.FAILED)
    assert (result.output_summary, result.runtime_ms, result.checksum) == ("no luck", 3, EMPTY_SHA256)


def test_failure_reason_is_empty_unless_failed(wire: Wire) -> None:
    """A success whose worker talks of a failure has none."""
    job_id = finished(wire, public.JOB_OUTCOME_SUCCEEDED, failure_reason="confused")
    assert wire.status(job_id).failure_reason == ""


def test_canceled_job_tells_why_in_its_summary(wire: Wire) -> None:
    """CANCELED while queued is ready, with the canceller's reason as its summary and no output."""
    job_id = wire.new()
    wire.cancel(job_id, "changed my mind")
    result = wire.result(job_id)
    assert (result.result_ready, result.terminal_status) == (True, public.CANCELED)
    assert (result.output_summary, result.output_bytes) == ("changed my mind", b"")


def test_output_at_the_cap_is_kept_whole(wire: Wire) -> None:
    """Exactly 256 KiB of output are accepted."""
    job_id = finished(wire, public.JOB_OUTCOME_SUCCEEDED, output_bytes=b"x" * OUTPUT_BYTES_MAX)
    result = wire.result(job_id)
    assert (result.terminal_status, len(result.output_bytes)) == (public.DONE, OUTPUT_BYTES_MAX)


def test_output_over_the_cap_fails_the_job_and_stores_no_bytes(wire: Wire) -> None:
    """One byte more than 256 KiB makes the job FAILED with OUTPUT_TOO_LARGE and an empty output."""
    job_id = finished(wire, public.JOB_OUTCOME_SUCCEEDED, output_bytes=b"x" * (OUTPUT_BYTES_MAX + 1))
    job, result = wire.status(job_id), wire.result(job_id)
    assert (job.status, job.failure_reason) == (public.FAILED, "OUTPUT_TOO_LARGE")
    assert (result.result_ready, result.output_bytes, result.checksum) == (True, b"", EMPTY_SHA256)


def test_reads_can_be_repeated(wire: Wire) -> None:
    """Reading status and result again and again gives the same answer."""
    job_id = finished(wire, public.JOB_OUTCOME_SUCCEEDED, output_bytes=b"x")
    answers = {(wire.status(job_id).SerializeToString(), wire.result(job_id).SerializeToString())}
    answers |= {(wire.status(job_id).SerializeToString(), wire.result(job_id).SerializeToString())}
    assert len(answers) == 1


def test_unknown_job_is_not_found(wire: Wire) -> None:
    """Status and result of a job that never was are NOT_FOUND."""
    for call in (wire.status, wire.result):
        refused = refusal(lambda call=call: call(NO_JOB))  # type: ignore[misc]
        assert (refused.code, refused.reason) == (grpc.StatusCode.NOT_FOUND, "JOB_NOT_FOUND")


@pytest.mark.parametrize(("job_id", "reason"), [("", "JOB_ID_EMPTY"), ("x" * 129, "JOB_ID_TOO_LONG")])
def test_malformed_job_id_is_an_invalid_argument(wire: Wire, job_id: str, reason: str) -> None:
    """An id that cannot be one is INVALID_ARGUMENT for every method that takes one."""
    for call in (wire.status, wire.result, wire.cancel):
        refused = refusal(lambda call=call: call(job_id))  # type: ignore[misc]
        assert (refused.code, refused.reason) == (grpc.StatusCode.INVALID_ARGUMENT, reason)


def test_hostile_job_id_is_not_found_and_logged_on_one_line(wire: Wire, server: Served) -> None:
    """An id full of control characters is NOT_FOUND, and every line of the log stays one JSON object."""
    hostile = '\n{"event":"forged"}\r\x1b[2J\0\u202e<script>../'
    assert refusal(lambda: wire.status(hostile)).code == grpc.StatusCode.NOT_FOUND
    assert not [line for line in server.log.splitlines() if not line.startswith("{")]
    assert server.lines("forged") == []
