"""The judgement over what clients have heard: each kind of broken promise is found."""

from collections.abc import Callable

import pytest

from holdfast.proto import taskqueue_public_pb2 as public
from tests.e2e.contract_load import Plan, Story

DONE = public.GetJobStatusResponse(job_id="a", status=public.DONE, finished_at_ms=5)
QUEUED = public.GetJobStatusResponse(job_id="a", status=public.QUEUED)
RESULT = public.GetJobResultResponse(
    job_id="a", result_ready=True, terminal_status=public.DONE, output_bytes=b"..", runtime_ms=1
)


def story(**plan: bool) -> Story:
    """One job that was acknowledged and ended well."""
    kept = {"fails": False, "is_keyed": True, "may_be_canceled": True, **plan}
    told = Story(Plan(name="c0-0", ms=0, size=2, **kept))
    told.ids.add("a")
    told.heard_status(QUEUED)
    told.heard_status(DONE)
    told.heard_result(RESULT)
    return told


def changed(answer: public.GetJobStatusResponse, **fields: int | str) -> public.GetJobStatusResponse:
    other = public.GetJobStatusResponse()
    other.CopyFrom(answer)
    for name, value in fields.items():
        setattr(other, name, value)
    return other


def ended(status: int, *, reason: str = "") -> Story:
    """One whose end and result are of this status."""
    told = story()
    told.ends = [changed(DONE, status=status, failure_reason=reason)]
    told.results = [public.GetJobResultResponse(result_ready=True, terminal_status=status)]  # type: ignore[arg-type]
    return told


def test_lawful_stories_are_no_problem() -> None:
    """An end that stays, with its own result, is what was promised; so is the end of a worker that was lost."""
    assert story().problems() == []
    assert ended(public.FAILED, reason="WORKER_LOST").problems() == []


WRONG: dict[str, Callable[[Story], object]] = {
    "2 ids were told": lambda told: told.ids.add("b"),
    "0 ids were told": lambda told: told.ids.clear(),
    "it had ended, and is 1": lambda told: told.heard_status(QUEUED),
    "it had ended, and has no result": lambda told: told.heard_result(public.GetJobResultResponse(job_id="a")),
    "2 ends and 1 results were told": lambda told: told.heard_status(changed(DONE, finished_at_ms=6)),
    "0 ends and 1 results were told": lambda told: told.ends.clear(),
    "1 ends and 0 results were told": lambda told: told.results.clear(),
    "its result has another status": lambda told: setattr(told.results[0], "terminal_status", public.FAILED),
    "its output is another": lambda told: setattr(told.results[0], "output_bytes", b"..."),
    "it was canceled, and ended otherwise": lambda told: setattr(told, "is_canceled", True),
    "it was canceled before it ran, and ran": lambda told: setattr(told, "never_runs", True),
}


@pytest.mark.parametrize("problem", WRONG)
def test_broken_promise_is_found(problem: str) -> None:
    """Whatever a client must not hear is told as what it is."""
    told = story()
    told.results = [public.GetJobResultResponse.FromString(RESULT.SerializeToString())]
    WRONG[problem](told)
    assert problem in told.problems()


def test_end_without_a_cause_is_found() -> None:
    """A job that nobody canceled is not CANCELED, one that fails is not DONE, and one that works is not FAILED."""
    assert "nobody canceled it" in ended(public.CANCELED).problems()
    assert "it cannot succeed" in story(fails=True).problems()
    assert "it has no reason to fail" in ended(public.FAILED, reason="BUG").problems()
