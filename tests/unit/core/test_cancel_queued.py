"""Canceling many jobs at once: waiting jobs end in one event, other jobs do not change."""

from holdfast import limits
from holdfast.core.lifecycle import CANCELED, DONE, RUNNING
from tests.unit.core.desk import Desk


def test_only_what_waits_is_canceled(desk: Desk) -> None:
    """A bulk cancel skips running, finished and unknown jobs, and one event names each waiting job once."""
    desk.submit("a", "b", "c")
    desk.submit("d", not_before_ms=desk.log_ms + 50)
    desk.finish("a")
    desk.run_one()
    before = desk.ledger.position
    assert desk.cancel_queued("a", "b", "c", "d", "c", "nobody", reason="purged") == ["c", "d"]
    assert desk.ledger.position == before + 1
    assert [desk.job(job_id).state for job_id in "abcd"] == [DONE, RUNNING, CANCELED, CANCELED]
    result = desk.job("c").result
    assert result is not None
    assert result.summary == "purged"
    assert desk.leased_ids(9) == []


def test_nothing_that_waits_is_no_event(desk: Desk) -> None:
    """A second cancel of the same jobs writes no event."""
    desk.submit("a")
    desk.cancel_queued("a")
    assert desk.cancel_queued("a") == []
    assert desk.cancel_queued() == []
    assert desk.ledger.position == 2


def test_too_many_at_once_and_bad_reasons_are_refused(desk: Desk) -> None:
    """The ledger refuses a bulk cancel of more jobs than a batch may have, and one with an invalid reason."""
    ids = [f"job-{number}" for number in range(limits.BATCH_JOBS_MAX + 1)]
    assert desk.cancel_queued(*ids).reason == "BATCH_SIZE_INVALID"
    assert desk.cancel_queued("a", reason="\ud800").reason == "REASON_INVALID"
