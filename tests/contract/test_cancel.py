"""CancelJob: ends what waits, asks what runs, never disturbs what has ended."""

import grpc
import pytest

from holdfast.proto import taskqueue_public_pb2 as public
from tests.contract.test_status_and_result import NO_JOB, finished, running
from tests.e2e.wire import Wire, refusal


def answer(status: int, *, already_terminal: bool) -> tuple[bool, int, bool]:
    return True, status, already_terminal


def canceled(wire: Wire, job_id: str, reason: str = "") -> tuple[bool, int, bool]:
    response = wire.cancel(job_id, reason)
    assert response.job_id == job_id
    return response.accepted, response.current_status, response.already_terminal


def test_canceling_a_queued_job_ends_it(wire: Wire) -> None:
    """What waits is CANCELED in the answer itself, and its end is stamped."""
    job_id = wire.new()
    assert canceled(wire, job_id) == answer(public.CANCELED, already_terminal=False)
    job = wire.status(job_id)
    assert (job.status, job.cancel_requested, job.started_at_ms) == (public.CANCELED, True, 0)
    assert job.finished_at_ms >= job.created_at_ms


def test_a_canceled_queued_job_is_never_handed_out(wire: Wire) -> None:
    """After the answer no worker gets the job."""
    wire.cancel(wire.new())
    wanted = running(wire).job_id
    assert wire.status(wanted).status == public.RUNNING
    assert not wire.fetch("w").assigned


def test_canceling_a_running_job_asks_and_promises_nothing(wire: Wire) -> None:
    """A running job is marked and goes on, and its success still counts."""
    assigned = running(wire)
    assert canceled(wire, assigned.job_id) == answer(public.RUNNING, already_terminal=False)
    job = wire.status(assigned.job_id)
    assert (job.status, job.cancel_requested) == (public.RUNNING, True)
    assert wire.report("w", assigned.job_id, token=assigned.token)
    assert wire.status(assigned.job_id).status == public.DONE


def test_a_running_job_whose_worker_obeys_is_canceled(wire: Wire) -> None:
    """A worker that reports a requested cancel makes the job CANCELED, with its words as the summary."""
    assigned = running(wire)
    wire.cancel(assigned.job_id, "not needed")
    fields = {"token": assigned.token, "output_summary": "stopped half-way"}
    assert wire.report("w", assigned.job_id, public.JOB_OUTCOME_CANCELED, **fields)
    result = wire.result(assigned.job_id)
    assert (result.terminal_status, result.output_summary) == (public.CANCELED, "stopped half-way")


@pytest.mark.parametrize("state", ["queued", "running"])
def test_a_cancel_without_a_word_still_has_a_summary(wire: Wire, state: str) -> None:
    """Where neither the canceller nor the worker says why, the summary says that nobody did."""
    if state == "queued":
        job_id = wire.new()
        wire.cancel(job_id)
    else:
        job_id = (assigned := running(wire)).job_id
        wire.cancel(job_id)
        wire.report("w", job_id, public.JOB_OUTCOME_CANCELED, token=assigned.token)
    result = wire.result(job_id)
    assert (result.terminal_status, result.output_summary) == (
        public.CANCELED,
        "canceled; no reason was given",
    )


def test_a_cancel_that_nobody_asked_for_is_a_failure(wire: Wire) -> None:
    """A worker cannot cancel a job by itself: the job is FAILED."""
    assigned = running(wire)
    assert wire.report("w", assigned.job_id, public.JOB_OUTCOME_CANCELED, token=assigned.token)
    assert wire.status(assigned.job_id).status == public.FAILED


def test_canceling_again_gives_the_same_answer(wire: Wire) -> None:
    """A second cancel of a running job is the first one's answer over again."""
    assigned = running(wire)
    assert canceled(wire, assigned.job_id) == canceled(wire, assigned.job_id, "more words")


@pytest.mark.parametrize("outcome", [public.JOB_OUTCOME_SUCCEEDED, public.JOB_OUTCOME_FAILED])
def test_canceling_what_has_ended_changes_nothing(wire: Wire, outcome: int) -> None:
    """A finished job stays as it is, and the answer says that it had ended before."""
    job_id = finished(wire, outcome)
    before = wire.status(job_id)
    assert canceled(wire, job_id) == answer(before.status, already_terminal=True)
    assert wire.status(job_id) == before


def test_canceling_a_canceled_job_says_that_it_had_ended(wire: Wire) -> None:
    """The second cancel of a queued job finds it terminal, and keeps the first one's reason."""
    job_id = wire.new()
    wire.cancel(job_id, "first")
    assert canceled(wire, job_id, "second") == answer(public.CANCELED, already_terminal=True)
    assert wire.result(job_id).output_summary == "first"


def test_a_cancel_that_comes_too_late_becomes_a_request(wire: Wire) -> None:
    """Once the job was handed out, a cancel for a queued job sets the flag and tells the true status."""
    assigned = running(wire)
    assert canceled(wire, assigned.job_id) == answer(public.RUNNING, already_terminal=False)
    assert wire.status(assigned.job_id).cancel_requested


def test_canceling_an_unknown_job_is_not_found(wire: Wire) -> None:
    """There is nothing to cancel, and the answer says so."""
    refused = refusal(lambda: wire.cancel(NO_JOB))
    assert (refused.code, refused.reason) == (grpc.StatusCode.NOT_FOUND, "JOB_NOT_FOUND")


def test_reason_has_a_limit(wire: Wire) -> None:
    """1,024 characters are kept whole, one more is INVALID_ARGUMENT and cancels nothing."""
    job_id = wire.new()
    refused = refusal(lambda: wire.cancel(job_id, "r" * 1_025))
    assert (refused.code, refused.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "REASON_TOO_LONG")
    assert wire.status(job_id).status == public.QUEUED
    wire.cancel(job_id, "r" * 1_024)
    assert wire.result(job_id).output_summary == "r" * 1_024
