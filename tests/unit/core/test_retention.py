"""Retention of finished jobs: by age, by number and by bytes; failed jobs are kept longer."""

import msgspec

from holdfast.core import commands
from holdfast.core.events import Evicted, Retired
from holdfast.core.footprint import JOB_BYTES, RESULT_BYTES
from holdfast.core.lifecycle import FAILED
from holdfast.core.retention import wait_ms
from tests.unit.core.desk import Desk


def _kept(desk: Desk) -> list[str]:
    return list(desk.ledger.book.jobs)


def _finish(desk: Desk, **states: bool) -> None:
    """Submits and ends these jobs in this order; True makes a job fail."""
    for job_id, is_failed in states.items():
        desk.submit(job_id)
        if is_failed:
            desk.report(job_id, desk.run_one().token, FAILED)
        else:
            desk.finish(job_id)


def test_failed_jobs_have_an_age_of_their_own(desk: Desk) -> None:
    """A failed job outlives a job that finished later, and is evicted at its own age to the millisecond."""
    _finish(desk, a=True, b=False)
    desk.pass_ms(100)
    assert desk.evict(retain_ms=100, retain_failed_ms=300) == 1
    assert _kept(desk) == ["a"]
    desk.pass_ms(199)
    assert desk.evict(retain_ms=100, retain_failed_ms=300) == 0
    desk.pass_ms(1)
    assert desk.evict(retain_ms=100, retain_failed_ms=300) == 1
    assert _kept(desk) == []


def test_failed_jobs_stay_when_there_are_too_many_of_others(desk: Desk) -> None:
    """Above the number retained, the oldest jobs that did not fail are evicted first."""
    _finish(desk, a=True, b=False, c=True, d=False, e=False)
    assert desk.evict(retain_jobs=4) == 1
    assert _kept(desk) == ["a", "c", "d", "e"]


def test_flood_of_failures_leaves_others_half_of_the_room(desk: Desk) -> None:
    """If failed jobs take more than half of the number retained, they are evicted before others, oldest first."""
    _finish(desk, a=False, b=True, c=True, d=True, e=False)
    assert desk.evict(retain_jobs=4) == 1
    assert _kept(desk) == ["a", "c", "d", "e"]
    assert desk.evict(retain_jobs=3) == 1
    assert _kept(desk) == ["a", "d", "e"]


def test_failed_jobs_go_last_where_nothing_else_is_left(desk: Desk) -> None:
    """The limits of number and bytes hold for failed jobs too."""
    _finish(desk, a=True, b=False, c=True)
    assert desk.evict(retain_jobs=0) == 3
    assert _kept(desk) == []


def test_next_look_is_when_the_first_of_either_kind_is_due(desk: Desk) -> None:
    """The coordinator sleeps exactly until the first job of either kind is too old."""
    finished = desk.ledger.book.finished
    at_ms = desk.ledger.book.last_ms
    assert wait_ms(finished, commands.Evict(100, 9, 9_999, 50), at_ms) is None
    _finish(desk, a=True, b=False)
    at_ms = desk.ledger.book.last_ms
    assert wait_ms(finished, commands.Evict(100, 9, 9_999, 300), at_ms) == 100
    assert wait_ms(finished, commands.Evict(400, 9, 9_999, 300), at_ms) == 300
    assert wait_ms(finished, commands.Evict(400, 1, 9_999, 300), at_ms) == 0


def test_event_of_an_earlier_version_forgets_the_oldest_of_all(desk: Desk) -> None:
    """An `Evicted` event, which is older than the retention of failed jobs, removes the oldest jobs of any state."""
    _finish(desk, a=False, b=True, c=False, d=True, e=True, f=False)
    ledger = desk.reloaded()
    for left in (["b", "c", "d", "e", "f"], ["c", "d", "e", "f"], ["d", "e", "f"], ["e", "f"]):
        ledger.apply(Evicted(ledger.book.last_ms, 1))
        assert list(ledger.book.jobs) == left
    ledger.book.audit()


def test_retirement_is_an_event_of_its_own(desk: Desk) -> None:
    """Eviction writes an event with a tag of its own, which an earlier version rejects and cannot misread."""
    _finish(desk, a=False, b=True)
    decision = desk.decide(commands.Evict(0, 0, 0))
    assert isinstance(decision, commands.Decision)
    assert isinstance(decision.event, Retired)
    assert (msgspec.structs.fields(Evicted)[-1].name, Retired.__struct_config__.tag) == ("count", 16)


def test_order_of_all_survives_an_image_and_a_removal(desk: Desk) -> None:
    """Finished jobs stay in the order in which they ended, after a load and after a removal."""
    _finish(desk, a=True, b=False, c=True, d=False, e=True)
    book = desk.reloaded().book
    finished = book.finished
    assert [job.id for job in finished] == ["a", "b", "c", "d", "e"]
    finished.remove(book.jobs["b"])
    assert [job.id for job in finished] == ["a", "c", "d", "e"]
    assert [finished.pop_oldest().id for _ in range(4)] == ["a", "c", "d", "e"]
    assert (finished.bytes_held, finished.failed_bytes) == (0, 0)


def test_finished_jobs_go_when_they_are_old_enough(desk: Desk) -> None:
    """A job is kept for less than `retain_ms` after it finished, and is evicted at that millisecond."""
    desk.submit("a")
    desk.finish("a")
    desk.pass_ms(99)
    assert desk.evict(retain_ms=100) == 0
    desk.pass_ms(1)
    assert desk.evict(retain_ms=100) == 1
    assert _kept(desk) == []


def test_oldest_finished_jobs_go_when_there_are_too_many(desk: Desk) -> None:
    """Above the number retained the jobs that finished first are evicted, whenever they were submitted."""
    desk.submit(*"abcd")
    desk.cancel("c")
    desk.finish("a", "b")
    assert desk.evict(retain_jobs=2) == 1
    assert _kept(desk) == ["a", "b", "d"]


def test_oldest_finished_jobs_go_when_they_hold_too_much(desk: Desk) -> None:
    """Above the bytes retained, which count all data of finished jobs, the oldest are evicted until the rest fits."""
    desk.submit("a", "b", "c", payload=b"x" * 60)
    desk.finish("a", "b", "c", output=b"y" * 40)
    held = 3 * (JOB_BYTES + RESULT_BYTES + len("a") + 60 + 40)
    assert desk.evict(retain_bytes=held) == 0
    assert desk.evict(retain_bytes=held - 1) == 1
    assert _kept(desk) == ["b", "c"]


def test_waiting_and_running_jobs_are_never_forgotten(desk: Desk) -> None:
    """Waiting and running jobs are never evicted, however little is retained."""
    desk.submit("a", "b")
    desk.lease(1)
    assert desk.evict(0, 0, 0) == 0
    assert _kept(desk) == ["a", "b"]


def test_one_event_forgets_a_bounded_number(desk: Desk) -> None:
    """One event evicts at most a thousand jobs."""
    for batch in range(2):
        desk.submit(*(f"{batch}-{n}" for n in range(501)))
    for job_id in _kept(desk):
        desk.cancel(job_id)
    assert desk.evict(retain_jobs=0) == 1_000
    assert desk.evict(retain_jobs=0) == 2
    assert desk.evict(retain_jobs=0) == 0


def test_nothing_to_forget_is_no_event(desk: Desk) -> None:
    """An eviction that finds no job writes no event."""
    desk.submit("a")
    assert desk.decide(commands.Evict(0, 0, 0)) == commands.Decision(None, 0)


def test_forgotten_job_is_gone_for_every_reader(desk: Desk) -> None:
    """An evicted job is not found, not listed, not cancelable and not reportable."""
    desk.submit("a")
    desk.finish("a")
    desk.evict(0)
    assert desk.ledger.job("a") is None
    assert desk.ledger.page([], 0, 5, newest_first=False) == ([], False)
    assert desk.cancel("a").reason == "JOB_NOT_FOUND"
    assert desk.report("a", 1) == "UNKNOWN_JOB"


def test_bytes_held_return_to_zero(desk: Desk) -> None:
    """All counted bytes of a job are subtracted again when the job is evicted."""
    desk.submit("a", "b", payload=b"x" * 10)
    desk.finish("a", output=b"y" * 5)
    desk.cancel("b")
    assert desk.ledger.book.bytes_held == 2 * (JOB_BYTES + RESULT_BYTES) + len("ab") + 25
    desk.evict(0)
    assert (desk.ledger.book.bytes_held, desk.ledger.book.finished.bytes_held) == (0, 0)
