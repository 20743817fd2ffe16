"""Unique keys: at most one unfinished job per type and key."""

from collections.abc import Callable

import pytest

from holdfast import limits
from holdfast.core import commands
from holdfast.core.lifecycle import CANCELED, FAILED
from holdfast.core.model import Extra, NewJob, Template
from tests.unit.core.desk import ECHO, Desk


def test_submission_finds_the_job_that_has_not_ended(desk: Desk) -> None:
    """A second submit of the type and key returns the first job while that waits or runs, whatever its payload."""
    desk.submit_unique("a", "k")
    again = desk.submit_unique("b", "k", payload=b"other")
    assert (again.job_ids, again.existing, again.refusals) == (["a"], frozenset({0}), {})
    desk.run_one()
    assert desk.submit_unique("c", "k").job_ids == ["a"]
    assert desk.ledger.position == 2


def test_key_belongs_to_its_type(desk: Desk) -> None:
    """A unique key is separate per type, but not per queue or priority."""
    desk.submit_unique("a", "k")
    assert desk.submit_unique("b", "k", Template("other")).job_ids == ["b"]
    assert desk.submit_unique("c", "k", Template("echo", "q2", 9)).job_ids == ["a"]


def _done(desk: Desk) -> None:
    desk.finish("a")


def _failed(desk: Desk) -> None:
    desk.report("a", desk.run_one().token, FAILED)


def _lost(desk: Desk) -> None:
    for _ in range(2):
        desk.run_one()
        desk.revoke()


def _canceled(desk: Desk) -> None:
    desk.cancel("a")


def _canceled_together(desk: Desk) -> None:
    desk.cancel_queued("a")


def _canceled_while_running(desk: Desk) -> None:
    lease = desk.run_one()
    desk.cancel("a")
    desk.report("a", lease.token, CANCELED)


def _canceled_and_lost(desk: Desk) -> None:
    desk.run_one()
    desk.cancel("a")
    desk.revoke()


ENDS = [_done, _failed, _lost, _canceled, _canceled_together, _canceled_while_running, _canceled_and_lost]


@pytest.mark.parametrize("end", ENDS)
def test_key_is_free_once_its_job_has_ended(desk: Desk, end: Callable[[Desk], None]) -> None:
    """However a job ends, the next submit creates a new one, and evicting the old one changes nothing."""
    desk.submit_unique("a", "k", Template("echo", max_losses=1))
    end(desk)
    assert desk.submit_unique("b", "k").job_ids == ["b"]
    desk.evict(retain_jobs=0)
    assert desk.submit_unique("c", "k").job_ids == ["b"]


def test_job_that_comes_back_keeps_its_key(desk: Desk) -> None:
    """A retried job and a job that lost its worker keep their unique key."""
    desk.submit_unique("a", "k", Template("echo", max_attempts=2))
    desk.report("a", desk.run_one().token, FAILED, retry_after_ms=1)
    assert desk.submit_unique("b", "k").job_ids == ["a"]
    desk.pass_ms(1)
    desk.run_one()
    desk.revoke()
    assert desk.submit_unique("c", "k").job_ids == ["a"]


def test_twins_in_one_batch_make_one_job(desk: Desk) -> None:
    """Several jobs with one unique key in a batch become one job."""
    jobs = [NewJob(job_id, 0, job_id.encode(), 0, Extra(unique_key="k")) for job_id in "abc"]
    reply = desk.do(commands.Submit([ECHO], jobs))
    assert (reply.job_ids, reply.existing) == (["a", "a", "a"], frozenset({1, 2}))


def test_request_id_counts_before_the_unique_key(desk: Desk) -> None:
    """A repeated request returns the job that it created, even after another job has taken over the unique key."""
    extra = Extra(request_id="r", unique_key="k")
    desk.submit("a", extra=extra)
    desk.finish("a")
    desk.submit_unique("b", "k")
    assert desk.submit("c", extra=extra).job_ids == ["a"]


def test_id_counts_before_the_unique_key(desk: Desk) -> None:
    """A submit repeated with its job id returns that job, even after another job has taken over the key."""
    desk.submit_unique("a", "k")
    desk.finish("a")
    desk.submit_unique("b", "k")
    assert desk.submit_unique("a", "k").job_ids == ["a"]


def test_keys_survive_restart_and_snapshot(desk: Desk) -> None:
    """After a restart, from the log or a snapshot, only the keys of unfinished jobs are in use."""
    desk.submit_unique("a", "k")
    desk.submit_unique("x", "ended", Template("other"))
    desk.cancel("x")
    for restarted, new in ((desk.replayed, "y"), (desk.reloaded, "z")):
        desk.restart(restarted())
        assert desk.submit_unique("b", "k").job_ids == ["a"]
        assert desk.submit_unique(new, "ended", Template("other")).job_ids == [new]
        desk.cancel(new)


@pytest.mark.parametrize(
    ("key", "reason"),
    [("k" * (limits.UNIQUE_KEY_CHARS_MAX + 1), "UNIQUE_KEY_TOO_LONG"), ("a\nb", "UNIQUE_KEY_INVALID")],
)
def test_key_that_cannot_be_kept_is_refused(desk: Desk, key: str, reason: str) -> None:
    """A unique key must be short, printable text, like a request id."""
    assert desk.submit_unique("a", key).refusals[0].reason == reason
