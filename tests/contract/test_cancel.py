"""CancelJob: cancels queued jobs, requests the cancel of running jobs, and leaves finished jobs unchanged."""

from pathlib import Path

import grpc
import pytest

from holdfast.proto import taskqueue_public_pb2 as public
from tests.contract.jobs import NO_JOB, ended, running, unstoppable
from tests.contract.served import Served, Serving
from tests.e2e.grpc_client import Wire, refusal


def answer(status: int, *, already_terminal: bool) -> tuple[bool, int, bool]:
    return True, status, already_terminal


def canceled(wire: Wire, job_id: str, reason: str = "") -> tuple[bool, int, bool]:
    response = wire.cancel(job_id, reason)
    assert response.job_id == job_id
    return response.accepted, response.current_status, response.already_terminal


def test_canceling_a_queued_job_ends_it(wire: Wire) -> None:
    """The response to the cancel of a queued job says CANCELED, and the job has an end time."""
    job_id = wire.new()
    assert canceled(wire, job_id) == answer(public.CANCELED, already_terminal=False)
    job = wire.status(job_id)
    assert (job.status, job.cancel_requested, job.started_at_ms) == (public.CANCELED, True, 0)
    assert job.finished_at_ms >= job.created_at_ms


def test_a_canceled_queued_job_is_never_handed_out(serve: Serving) -> None:
    """A worker that starts after the cancel of a queued job runs the jobs behind it and never the canceled one."""
    served = serve(nodes=1)
    wire = served.wire
    first, *behind = [wire.new() for _ in range(3)]
    assert canceled(wire, first) == answer(public.CANCELED, already_terminal=False)
    before = wire.status(first)
    served.add_worker(slots=1)
    assert [wire.wait_for(job_id).status for job_id in behind] == [public.DONE] * 2
    assert wire.status(first) == before


def test_canceling_a_running_job_asks_and_promises_nothing(working: Wire, tmp_path: Path) -> None:
    """A running job continues after its cancel was accepted, and its success still counts."""
    job_id = unstoppable(working, tmp_path)
    assert canceled(working, job_id, "too late") == answer(public.RUNNING, already_terminal=False)
    job, result = working.wait_for(job_id), working.result(job_id)
    assert (job.status, job.cancel_requested) == (public.DONE, True)
    assert (result.terminal_status, result.output_bytes) == (public.DONE, b"finished")


def test_a_running_job_whose_worker_obeys_is_canceled(working: Wire) -> None:
    """A worker that receives a cancel stops the job, which is CANCELED with the canceller's reason as its summary."""
    job_id = running(working)
    assert canceled(working, job_id, "not needed") == answer(public.RUNNING, already_terminal=False)
    job, result = working.wait_for(job_id), working.result(job_id)
    assert (job.status, job.cancel_requested) == (public.CANCELED, True)
    assert job.created_at_ms <= job.started_at_ms <= job.finished_at_ms
    assert (result.terminal_status, result.output_summary) == (public.CANCELED, "not needed")


def test_a_queued_cancel_without_a_word_still_has_a_summary(wire: Wire) -> None:
    """A queued job that is canceled without a reason has a summary that says so."""
    job_id = wire.new()
    wire.cancel(job_id)
    result = wire.result(job_id)
    assert (result.terminal_status, result.output_summary) == (public.CANCELED, "canceled; no reason was given")


def test_a_running_cancel_without_a_word_still_has_a_summary(working: Wire) -> None:
    """A running job has a summary when neither the canceller nor the worker gives a reason."""
    job_id = running(working)
    working.cancel(job_id)
    working.wait_for(job_id)
    result = working.result(job_id)
    assert (result.terminal_status, result.output_summary) == (public.CANCELED, "canceled; no reason was given")


def test_canceling_again_gives_the_same_answer(working: Wire, working_server: Served) -> None:
    """A second cancel of a running job gets the response of the first, and the first reason stays."""
    job_id = running(working)
    with working_server.paused_worker():
        answers = [canceled(working, job_id, reason) for reason in ("first", "second")]
    assert answers == [answer(public.RUNNING, already_terminal=False)] * 2
    working.wait_for(job_id, public.CANCELED)
    assert working.result(job_id).output_summary == "first"


@pytest.mark.parametrize("labels", [{}, {"sim.fail": "no luck"}], ids=["DONE", "FAILED"])
def test_cancel_of_a_finished_job_changes_nothing(working: Wire, labels: dict[str, str]) -> None:
    """A cancel of a finished job changes neither the job nor its result, and the response says that it had ended."""
    job_id = ended(working, size=3, labels=labels)
    before = working.status(job_id), working.result(job_id)
    assert canceled(working, job_id, "late") == answer(before[0].status, already_terminal=True)
    assert (working.status(job_id), working.result(job_id)) == before


def test_canceling_a_canceled_job_says_that_it_had_ended(wire: Wire) -> None:
    """The second cancel of a queued job finds it terminal, and the first reason stays."""
    job_id = wire.new()
    wire.cancel(job_id, "first")
    before = wire.status(job_id), wire.result(job_id)
    assert canceled(wire, job_id, "second") == answer(public.CANCELED, already_terminal=True)
    assert (wire.status(job_id), wire.result(job_id)) == before
    assert wire.result(job_id).output_summary == "first"


def test_a_cancel_that_comes_too_late_becomes_a_request(working: Wire, working_server: Served) -> None:
    """A cancel of a job that a worker already runs sets `cancel_requested`, and the job is still RUNNING."""
    job_id = running(working)
    with working_server.paused_worker():
        assert canceled(working, job_id) == answer(public.RUNNING, already_terminal=False)
        job = working.status(job_id)
    assert (job.status, job.cancel_requested, job.finished_at_ms) == (public.RUNNING, True, 0)
    assert working.wait_for(job_id).status == public.CANCELED


def test_canceling_an_unknown_job_is_not_found(wire: Wire) -> None:
    """A cancel of an unknown job is NOT_FOUND."""
    refused = refusal(lambda: wire.cancel(NO_JOB))
    assert (refused.code, refused.reason) == (grpc.StatusCode.NOT_FOUND, "JOB_NOT_FOUND")


def test_reason_has_a_limit(wire: Wire) -> None:
    """A reason of 1,024 characters is stored whole; a longer one is INVALID_ARGUMENT and cancels nothing."""
    job_id = wire.new()
    refused = refusal(lambda: wire.cancel(job_id, "r" * 1_025))
    assert (refused.code, refused.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "REASON_TOO_LONG")
    assert wire.status(job_id).status == public.QUEUED
    wire.cancel(job_id, "r" * 1_024)
    assert wire.result(job_id).output_summary == "r" * 1_024
