"""GetJobStatus and GetJobResult for a job in each state."""

import hashlib
import time

import grpc
import pytest

from holdfast.proto import taskqueue_public_pb2 as public
from tests.contract.jobs import NO_JOB, ended, running
from tests.contract.served import Served
from tests.e2e.grpc_client import Wire, refusal

EMPTY_SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
OUTPUT_BYTES_MAX = 262_144
#: The largest expected difference between two clocks of one machine: the server's never goes back or is corrected.
CLOCKS_MS = 1_000


def test_queued_job_has_only_its_creation_time(wire: Wire) -> None:
    """A queued job has start and end time 0, no cancel request and no failure reason."""
    job = wire.status(wire.new())
    assert (job.status, job.cancel_requested, job.failure_reason) == (public.QUEUED, False, "")
    assert job.created_at_ms > 0
    assert (job.started_at_ms, job.finished_at_ms) == (0, 0)


def test_handing_out_makes_a_job_running_and_stamps_its_start(working: Wire) -> None:
    """A job that a worker holds is RUNNING, with a start not before its creation and no end time."""
    job = working.status(running(working))
    assert job.status == public.RUNNING
    assert job.started_at_ms >= job.created_at_ms > 0
    assert job.finished_at_ms == 0


def test_end_is_stamped_when_the_outcome_is_accepted(working: Wire) -> None:
    """A finished job has a creation, start and end time in this order."""
    job = working.status(ended(working))
    assert job.status == public.DONE
    assert 0 < job.created_at_ms <= job.started_at_ms <= job.finished_at_ms


def test_times_are_utc_milliseconds_of_the_server(wire: Wire) -> None:
    """A creation time lies between the client's times before and after the call on the same machine."""
    before_ms = time.time_ns() // 1_000_000
    job = wire.status(wire.new())
    assert before_ms - CLOCKS_MS <= job.created_at_ms <= time.time_ns() // 1_000_000 + CLOCKS_MS


def test_result_of_a_queued_job_is_not_ready_and_no_error(wire: Wire) -> None:
    """The result of a queued job is OK, not ready, with unspecified status and otherwise empty."""
    job_id = wire.new()
    assert wire.result(job_id) == public.GetJobResultResponse(job_id=job_id)


def test_result_of_a_running_job_is_not_ready_and_no_error(working: Wire) -> None:
    """The result of a running job is OK, not ready, with unspecified status and otherwise empty."""
    job_id = running(working)
    assert working.result(job_id) == public.GetJobResultResponse(job_id=job_id)


def test_success_has_output_runtime_and_checksum(working: Wire) -> None:
    """The result of a DONE job has its output, its runtime and the output's SHA-256 in lowercase hex."""
    job_id = ended(working, ms=30, size=10)
    result = working.result(job_id)
    assert result.runtime_ms >= 29
    assert result == public.GetJobResultResponse(
        job_id=job_id,
        result_ready=True,
        terminal_status=public.DONE,
        output_bytes=b"." * 10,
        runtime_ms=result.runtime_ms,
        checksum=hashlib.sha256(b"." * 10).hexdigest(),
    )


def test_checksum_of_empty_output_is_there_too(working: Wire) -> None:
    """A result without output has the checksum of zero bytes."""
    result = working.result(ended(working))
    assert (result.result_ready, result.output_bytes, result.checksum) == (True, b"", EMPTY_SHA256)


def test_failure_tells_its_reason_in_status_and_summary(working: Wire) -> None:
    """The result of a FAILED job is ready, and both status and summary contain the reason."""
    job_id = ended(working, labels={"sim.fail": "no luck"})
    job, result = working.status(job_id), working.result(job_id)
    assert (job.status, job.failure_reason) == (public.FAILED, "no luck")
    assert (result.result_ready, result.terminal_status, result.output_summary) == (True, public.FAILED, "no luck")
    assert (result.output_bytes, result.checksum) == (b"", EMPTY_SHA256)


def test_failure_reason_is_empty_unless_failed(working: Wire) -> None:
    """A job that succeeded or was canceled has no failure reason."""
    canceled = running(working)
    working.cancel(canceled, "not needed")
    states = {working.status(ended(working)).failure_reason, working.wait_for(canceled).failure_reason}
    assert states == {""}


def test_canceled_job_tells_why_in_its_summary(wire: Wire) -> None:
    """The result of a job that was canceled while queued is ready, with the reason as its summary and no output."""
    job_id = wire.new()
    wire.cancel(job_id, "changed my mind")
    result = wire.result(job_id)
    assert (result.result_ready, result.terminal_status) == (True, public.CANCELED)
    assert (result.output_summary, result.output_bytes) == ("changed my mind", b"")


def test_output_at_the_cap_is_kept_whole(working: Wire) -> None:
    """An output of exactly 256 KiB is accepted."""
    result = working.result(ended(working, size=OUTPUT_BYTES_MAX))
    assert (result.terminal_status, len(result.output_bytes)) == (public.DONE, OUTPUT_BYTES_MAX)


@pytest.mark.parametrize("size", [OUTPUT_BYTES_MAX + 1, 2**32 - 1])
def test_output_over_the_cap_fails_the_job_and_stores_no_bytes(working: Wire, size: int) -> None:
    """An output above 256 KiB makes the job FAILED with OUTPUT_TOO_LARGE, no output, and its size in the summary."""
    job_id = ended(working, size=size)
    job, result = working.status(job_id), working.result(job_id)
    assert (job.status, job.failure_reason) == (public.FAILED, "OUTPUT_TOO_LARGE")
    assert (result.result_ready, result.output_bytes, result.checksum) == (True, b"", EMPTY_SHA256)
    assert str(size) in result.output_summary


def test_reads_can_be_repeated(working: Wire) -> None:
    """Repeated reads of status and result return the same response."""
    job_id = ended(working, size=1)
    answers = [(working.status(job_id), working.result(job_id)) for _ in range(3)]
    assert answers == [answers[0]] * 3


def test_unknown_job_is_not_found(wire: Wire) -> None:
    """Status and result of an unknown job are NOT_FOUND."""
    for call in (wire.status, wire.result):
        refused = refusal(lambda call=call: call(NO_JOB))  # type: ignore[misc]
        assert (refused.code, refused.reason) == (grpc.StatusCode.NOT_FOUND, "JOB_NOT_FOUND")


@pytest.mark.parametrize(("job_id", "reason"), [("", "JOB_ID_EMPTY"), ("x" * 129, "JOB_ID_TOO_LONG")])
def test_malformed_job_id_is_an_invalid_argument(wire: Wire, job_id: str, reason: str) -> None:
    """A malformed job id is INVALID_ARGUMENT for every method that takes one."""
    for call in (wire.status, wire.result, wire.cancel):
        refused = refusal(lambda call=call: call(job_id))  # type: ignore[misc]
        assert (refused.code, refused.reason) == (grpc.StatusCode.INVALID_ARGUMENT, reason)


def test_hostile_job_id_is_not_found_and_logged_on_one_line(wire: Wire, server: Served) -> None:
    """A job id with control characters is NOT_FOUND, and every log line remains one JSON object."""
    hostile = '\n{"event":"forged"}\r\x1b[2J\0\u202e<script>../'
    assert refusal(lambda: wire.status(hostile)).code == grpc.StatusCode.NOT_FOUND
    assert not [line for line in server.log.splitlines() if not line.startswith("{")]
    assert server.lines("forged") == []
