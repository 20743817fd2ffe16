"""The ready queue: order inside lanes, order between lanes, and memory."""

import random
from typing import Any

from holdfast.core.model import FIXED, BackoffRule, JobRecord, Template
from tests.unit.core.ledger_driver import ECHO, LedgerDriver

HIGH, LOW = Template("echo", priority=9), Template("echo", priority=0)
RETRIED = Template("echo", max_attempts=3, backoff=BackoffRule(FIXED, 50))


def test_jobs_are_granted_in_submit_order(driver: LedgerDriver) -> None:
    """Inside a lane the oldest job goes first, whatever its id."""
    driver.submit("c", "a")
    driver.submit("b")
    assert driver.leased_ids(5) == ["c", "a", "b"]


def test_worker_gets_no_more_than_it_asked_for(driver: LedgerDriver) -> None:
    """A grant holds at most the requested number of jobs, and the other jobs wait."""
    driver.submit("a", "b", "c")
    assert driver.leased_ids(2) == ["a", "b"]
    assert driver.leased_ids(0) == []
    assert driver.leased_ids(2) == ["c"]


def test_worker_gets_only_types_that_it_knows(driver: LedgerDriver) -> None:
    """A worker gets no job of a type that it does not name."""
    driver.submit("a", template=Template("other"))
    driver.submit("b")
    assert driver.leased_ids(5) == ["b"]
    assert driver.leased_ids(5, routes=("other",)) == ["a"]


def test_simulated_jobs_are_routed_to_the_simulator(driver: LedgerDriver) -> None:
    """A simulated job goes only to workers that simulate, whatever its type."""
    driver.submit("a", template=Template("echo", simulated=True))
    assert driver.leased_ids() == []
    assert driver.leased_ids(routes=("sim",)) == ["a"]


def test_worker_that_names_queues_gets_only_their_jobs(driver: LedgerDriver) -> None:
    """A worker that names queues gets jobs of these queues, and one that names none gets all, oldest first."""
    driver.submit("a", template=Template("echo", queue="slow"))
    driver.submit("b", "c", template=Template("echo", queue="fast"))
    assert driver.leased_ids(1, queues=("fast",)) == ["b"]
    assert driver.leased_ids(5) == ["a", "c"]


def test_urgent_job_overtakes() -> None:
    """A job of higher priority goes first although it was submitted later."""
    driver = LedgerDriver(aging_ms=1_000)
    driver.submit("low", template=LOW)
    driver.submit("high", template=HIGH)
    assert driver.leased_ids(2) == ["high", "low"]


def test_patient_job_is_not_starved() -> None:
    """Once a job has waited longer than the difference in priority is worth, newer urgent jobs go after it."""
    driver = LedgerDriver(aging_ms=1_000)
    driver.submit("low", template=LOW)
    driver.pass_ms(9_001)
    driver.submit("high", template=HIGH)
    assert driver.leased_ids(2) == ["low", "high"]


def test_tie_of_age_and_priority_goes_to_the_older_job() -> None:
    """If waiting time outweighs priority exactly, the submit order decides."""
    driver = LedgerDriver(aging_ms=1_000)
    driver.submit("low", template=LOW)
    driver.pass_ms(9_000)
    driver.submit("high", template=HIGH)
    assert driver.leased_ids(2) == ["low", "high"]


def test_priority_is_strict_without_aging() -> None:
    """With aging off, no waiting time outweighs a priority."""
    driver = LedgerDriver(aging_ms=0)
    driver.submit("low", template=LOW)
    driver.pass_ms(10**9)
    driver.submit("high-1", "high-2", template=HIGH)
    assert driver.leased_ids(3) == ["high-1", "high-2", "low"]


def test_job_is_not_granted_before_its_time(driver: LedgerDriver) -> None:
    """A delayed job is not granted before `not_before_ms`, and is granted at that millisecond."""
    driver.submit("a", not_before_ms=driver.log_ms + 100)
    driver.pass_ms(99)
    assert driver.leased_ids() == []
    driver.pass_ms(1)
    assert driver.leased_ids() == ["a"]


def test_due_job_takes_the_place_of_its_number(driver: LedgerDriver) -> None:
    """A delayed job that is due goes before jobs that were submitted after it."""
    driver.submit("a", not_before_ms=driver.log_ms + 100)
    driver.submit("b")
    driver.pass_ms(100)
    assert driver.leased_ids(2) == ["a", "b"]


def test_returned_jobs_take_their_old_places(driver: LedgerDriver) -> None:
    """Jobs whose leases ended go before newer ones, in submit order, however often they came back."""
    driver.submit("a", "b", "c", "d")
    for _ in range(3):
        assert driver.leased_ids(3) == ["a", "b", "c"]
        driver.revoke(reason="released")
    assert driver.leased_ids(4) == ["a", "b", "c", "d"]


def test_retried_job_waits_and_then_takes_its_old_place(driver: LedgerDriver) -> None:
    """A failed job lets others pass during its back-off, and none after it."""
    driver.submit("a", "b", "c", template=RETRIED)
    first = driver.run_one()
    driver.report("a", first.token, 4)
    assert driver.leased_ids(1) == ["b"]
    driver.pass_ms(50)
    assert driver.leased_ids(2) == ["a", "c"]


def test_order_holds_in_any_mixture_of_fresh_and_returned_jobs() -> None:
    """Over random grants and returns a lane always grants its oldest jobs."""
    rng, driver = random.Random(7), LedgerDriver()
    driver.submit(*(f"job-{n:03}" for n in range(200)))
    waiting = [f"job-{n:03}" for n in range(200)]
    for _ in range(20):
        count = rng.randrange(1, 30)
        leases = driver.lease(count)
        assert [lease.job_id for lease in leases] == waiting[:count]
        back = {lease.token: lease.job_id for lease in leases if rng.random() < 0.5}
        driver.revoke(reason="released", tokens=frozenset(back))
        for lease in leases:
            if lease.token not in back:
                driver.report(lease.job_id, lease.token)
        waiting = sorted([*waiting[count:], *back.values()])
    driver.check()


def _entries(driver: LedgerDriver) -> int:
    ready = driver.ledger.state.ready
    return len(ready._delayed) + sum(len(lane.fresh) + len(lane.returned) for lane in ready.lanes.values())


def test_memory_is_bounded_when_jobs_are_submitted_and_canceled(driver: LedgerDriver) -> None:
    """Entries of canceled jobs are reclaimed although an older job keeps their lane in use."""
    driver.submit("oldest")
    for n in range(1_000):
        driver.submit(f"job-{n}")
        driver.cancel(f"job-{n}")
    assert _entries(driver) < 100


def test_memory_is_bounded_when_delayed_jobs_are_canceled(driver: LedgerDriver) -> None:
    """Entries of canceled jobs that were not due are reclaimed long before their due time."""
    for n in range(1_000):
        driver.submit(f"job-{n}", not_before_ms=driver.log_ms + 1_000_000)
        driver.cancel(f"job-{n}")
    assert _entries(driver) < 100


def test_memory_is_bounded_when_jobs_keep_coming_back(driver: LedgerDriver) -> None:
    """Entries of jobs that are granted and returned repeatedly are reclaimed."""
    driver.submit(*(f"job-{n}" for n in range(10)))
    for _ in range(500):
        driver.lease(5)
        driver.revoke(reason="released")
    assert _entries(driver) < 100


def test_lanes_vanish_with_their_last_job(driver: LedgerDriver) -> None:
    """A queue without waiting jobs takes no memory, and a delayed job creates no lane before it is due."""
    driver.submit("a", template=Template("echo", queue="once"))
    driver.submit("b", template=Template("echo", queue="later"), not_before_ms=driver.log_ms + 10)
    driver.lease(5)
    assert driver.ledger.state.ready.lanes == {}


def test_next_due_time_is_that_of_the_earliest_delayed_job(driver: LedgerDriver) -> None:
    """The next due time is that of the earliest delayed job."""
    assert driver.ledger.state.ready.next_due_ms() is None
    driver.submit("a", not_before_ms=driver.log_ms + 500)
    driver.submit("b", not_before_ms=driver.log_ms + 200)
    assert driver.ledger.state.ready.next_due_ms() == driver.log_ms + 200


def test_head_of_a_lane_is_read_without_sorting_all_jobs(driver: LedgerDriver) -> None:
    """The head of a lane with many returned jobs is found without sorting all of them."""
    driver.submit(*(f"job-{n:03}" for n in range(500)))
    driver.lease(500)
    driver.revoke(reason="released")
    (lane,) = driver.ledger.state.ready.lanes.values()

    class Counted(list[tuple[int, int, JobRecord]]):
        """Counts the entries that are read."""

        reads = 0

        def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - as list declares it, in overloads
            Counted.reads += 1
            return super().__getitem__(index)

    lane.returned = Counted(lane.returned)
    assert next(lane.in_order()).id == "job-000"
    assert Counted.reads <= 10
    lane.returned = list(lane.returned)


def test_default_template_is_the_middle_of_everything() -> None:
    """A job without options waits in the default queue at the middle priority."""
    assert (ECHO.queue, ECHO.priority, ECHO.max_attempts) == ("default", 5, 1)
