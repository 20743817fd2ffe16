"""Retention of finished jobs: by age, by number and by bytes; failed jobs are kept longer."""

import msgspec

from holdfast.core import commands
from holdfast.core.events import Evicted, Retired
from holdfast.core.footprint import JOB_BYTES, RESULT_BYTES
from holdfast.core.lifecycle import FAILED
from holdfast.core.retention import wait_ms
from tests.unit.core.ledger_driver import LedgerDriver


def _kept(driver: LedgerDriver) -> list[str]:
    return list(driver.ledger.state.jobs)


def _finish(driver: LedgerDriver, **states: bool) -> None:
    """Submits and ends these jobs in this order; True makes a job fail."""
    for job_id, is_failed in states.items():
        driver.submit(job_id)
        if is_failed:
            driver.report(job_id, driver.run_one().token, FAILED)
        else:
            driver.finish(job_id)


def test_failed_jobs_have_an_age_of_their_own(driver: LedgerDriver) -> None:
    """A failed job outlives a job that finished later, and is evicted at its own age to the millisecond."""
    _finish(driver, a=True, b=False)
    driver.pass_ms(100)
    assert driver.evict(retain_ms=100, retain_failed_ms=300) == 1
    assert _kept(driver) == ["a"]
    driver.pass_ms(199)
    assert driver.evict(retain_ms=100, retain_failed_ms=300) == 0
    driver.pass_ms(1)
    assert driver.evict(retain_ms=100, retain_failed_ms=300) == 1
    assert _kept(driver) == []


def test_failed_jobs_stay_when_there_are_too_many_of_others(driver: LedgerDriver) -> None:
    """Above the number retained, the oldest jobs that did not fail are evicted first."""
    _finish(driver, a=True, b=False, c=True, d=False, e=False)
    assert driver.evict(retain_jobs=4) == 1
    assert _kept(driver) == ["a", "c", "d", "e"]


def test_flood_of_failures_leaves_others_half_of_the_room(driver: LedgerDriver) -> None:
    """If failed jobs take more than half of the number retained, they are evicted before others, oldest first."""
    _finish(driver, a=False, b=True, c=True, d=True, e=False)
    assert driver.evict(retain_jobs=4) == 1
    assert _kept(driver) == ["a", "c", "d", "e"]
    assert driver.evict(retain_jobs=3) == 1
    assert _kept(driver) == ["a", "d", "e"]


def test_failed_jobs_go_last_where_nothing_else_is_left(driver: LedgerDriver) -> None:
    """The limits of number and bytes hold for failed jobs too."""
    _finish(driver, a=True, b=False, c=True)
    assert driver.evict(retain_jobs=0) == 3
    assert _kept(driver) == []


def test_next_look_is_when_the_first_of_either_kind_is_due(driver: LedgerDriver) -> None:
    """The coordinator sleeps exactly until the first job of either kind is too old."""
    finished = driver.ledger.state.finished
    at_ms = driver.ledger.state.last_ms
    assert wait_ms(finished, commands.Evict(100, 9, 9_999, 50), at_ms) is None
    _finish(driver, a=True, b=False)
    at_ms = driver.ledger.state.last_ms
    assert wait_ms(finished, commands.Evict(100, 9, 9_999, 300), at_ms) == 100
    assert wait_ms(finished, commands.Evict(400, 9, 9_999, 300), at_ms) == 300
    assert wait_ms(finished, commands.Evict(400, 1, 9_999, 300), at_ms) == 0


def test_event_of_an_earlier_version_forgets_the_oldest_of_all(driver: LedgerDriver) -> None:
    """An `Evicted` event, which is older than the retention of failed jobs, removes the oldest jobs of any state."""
    _finish(driver, a=False, b=True, c=False, d=True, e=True, f=False)
    ledger = driver.reloaded()
    for left in (["b", "c", "d", "e", "f"], ["c", "d", "e", "f"], ["d", "e", "f"], ["e", "f"]):
        ledger.apply(Evicted(ledger.state.last_ms, 1))
        assert list(ledger.state.jobs) == left
    ledger.state.audit()


def test_retirement_is_an_event_of_its_own(driver: LedgerDriver) -> None:
    """Eviction writes an event with a tag of its own, which an earlier version rejects and cannot misread."""
    _finish(driver, a=False, b=True)
    decision = driver.decide(commands.Evict(0, 0, 0))
    assert isinstance(decision, commands.Decision)
    assert isinstance(decision.event, Retired)
    assert (msgspec.structs.fields(Evicted)[-1].name, Retired.__struct_config__.tag) == ("count", 16)


def test_order_of_all_survives_an_image_and_a_removal(driver: LedgerDriver) -> None:
    """Finished jobs stay in the order in which they ended, after a load and after a removal."""
    _finish(driver, a=True, b=False, c=True, d=False, e=True)
    state = driver.reloaded().state
    finished = state.finished
    assert [job.id for job in finished] == ["a", "b", "c", "d", "e"]
    finished.remove(state.jobs["b"])
    assert [job.id for job in finished] == ["a", "c", "d", "e"]
    assert [finished.pop_oldest().id for _ in range(4)] == ["a", "c", "d", "e"]
    assert (finished.bytes_held, finished.failed_bytes) == (0, 0)


def test_finished_jobs_go_when_they_are_old_enough(driver: LedgerDriver) -> None:
    """A job is kept for less than `retain_ms` after it finished, and is evicted at that millisecond."""
    driver.submit("a")
    driver.finish("a")
    driver.pass_ms(99)
    assert driver.evict(retain_ms=100) == 0
    driver.pass_ms(1)
    assert driver.evict(retain_ms=100) == 1
    assert _kept(driver) == []


def test_oldest_finished_jobs_go_when_there_are_too_many(driver: LedgerDriver) -> None:
    """Above the number retained the jobs that finished first are evicted, whenever they were submitted."""
    driver.submit(*"abcd")
    driver.cancel("c")
    driver.finish("a", "b")
    assert driver.evict(retain_jobs=2) == 1
    assert _kept(driver) == ["a", "b", "d"]


def test_oldest_finished_jobs_go_when_they_hold_too_much(driver: LedgerDriver) -> None:
    """Above the bytes retained, which count all data of finished jobs, the oldest are evicted until the rest fits."""
    driver.submit("a", "b", "c", payload=b"x" * 60)
    driver.finish("a", "b", "c", output=b"y" * 40)
    held = 3 * (JOB_BYTES + RESULT_BYTES + len("a") + 60 + 40)
    assert driver.evict(retain_bytes=held) == 0
    assert driver.evict(retain_bytes=held - 1) == 1
    assert _kept(driver) == ["b", "c"]


def test_waiting_and_running_jobs_are_never_forgotten(driver: LedgerDriver) -> None:
    """Waiting and running jobs are never evicted, however little is retained."""
    driver.submit("a", "b")
    driver.lease(1)
    assert driver.evict(0, 0, 0) == 0
    assert _kept(driver) == ["a", "b"]


def test_one_event_forgets_a_bounded_number(driver: LedgerDriver) -> None:
    """One event evicts at most a thousand jobs."""
    for batch in range(2):
        driver.submit(*(f"{batch}-{n}" for n in range(501)))
    for job_id in _kept(driver):
        driver.cancel(job_id)
    assert driver.evict(retain_jobs=0) == 1_000
    assert driver.evict(retain_jobs=0) == 2
    assert driver.evict(retain_jobs=0) == 0


def test_nothing_to_forget_is_no_event(driver: LedgerDriver) -> None:
    """An eviction that finds no job writes no event."""
    driver.submit("a")
    assert driver.decide(commands.Evict(0, 0, 0)) == commands.Decision(None, 0)


def test_forgotten_job_is_gone_for_every_reader(driver: LedgerDriver) -> None:
    """An evicted job is not found, not listed, not cancelable and not reportable."""
    driver.submit("a")
    driver.finish("a")
    driver.evict(0)
    assert driver.ledger.job("a") is None
    assert driver.ledger.page([], 0, 5, newest_first=False) == ([], False)
    assert driver.cancel("a").reason == "JOB_NOT_FOUND"
    assert driver.report("a", 1) == "UNKNOWN_JOB"


def test_bytes_held_return_to_zero(driver: LedgerDriver) -> None:
    """All counted bytes of a job are subtracted again when the job is evicted."""
    driver.submit("a", "b", payload=b"x" * 10)
    driver.finish("a", output=b"y" * 5)
    driver.cancel("b")
    assert driver.ledger.state.bytes_held == 2 * (JOB_BYTES + RESULT_BYTES) + len("ab") + 25
    driver.evict(0)
    assert (driver.ledger.state.bytes_held, driver.ledger.state.finished.bytes_held) == (0, 0)
