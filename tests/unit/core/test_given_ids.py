"""Job ids made by clients: a repeated submit creates one job."""

import pytest

from holdfast.core import commands
from holdfast.core.model import Extra, NewJob, Template
from holdfast.errors import Code
from tests.unit.core.ledger_driver import ECHO, LedgerDriver

ID = "0f8fad5b-d9cb-469f-a165-70867728950e"


def test_repeated_id_gets_the_first_job(driver: LedgerDriver) -> None:
    """The same submit with the same id creates one job, whether that job waits, runs or has ended."""
    assert driver.submit("a", payload=b"x").existing == frozenset()
    for step in (lambda: None, driver.run_one, lambda: driver.report("a", 1)):
        step()
        again = driver.submit("a", payload=b"x")
        assert (again.job_ids, again.existing, again.refusals) == (["a"], frozenset({0}), {})
    assert driver.ledger.position == 3


def test_another_due_time_is_still_the_same_submission(driver: LedgerDriver) -> None:
    """A repeat with a later due time still counts as a repeat, because the clock has advanced since the first try."""
    driver.submit("a")
    assert driver.submit("a", not_before_ms=driver.log_ms + 5).job_ids == ["a"]


@pytest.mark.parametrize(
    ("template", "fields"),
    [
        (ECHO, {"payload": b"y"}),
        (Template("other"), {}),
        (ECHO, {"extra": Extra(labels=(("l", "v"),))}),
        (ECHO, {"extra": Extra(request_id="k")}),
        (ECHO, {"extra": Extra(unique_key="u")}),
    ],
)
def test_other_content_under_an_id_is_refused(
    driver: LedgerDriver, template: Template, fields: dict[str, object]
) -> None:
    """A submit with a used id that differs in anything but its due time is refused."""
    driver.submit("a")
    reply = driver.submit("a", template=template, **fields)
    assert (reply.job_ids, reply.existing) == ([""], frozenset())
    assert (reply.refusals[0].code, reply.refusals[0].reason) == (Code.FAILED_PRECONDITION, "JOB_ID_REUSED")


def test_id_twice_in_one_batch_makes_one_job(driver: LedgerDriver) -> None:
    """In one batch, a second job with the same id returns the first one, and a third that differs is refused."""
    jobs = [NewJob("a", 0), NewJob("a", 0), NewJob("a", 0, b"x")]
    reply = driver.do(commands.Submit([ECHO], jobs))
    assert (reply.job_ids, reply.existing, set(reply.refusals)) == (["a", "a", ""], frozenset({1}), {2})


def test_request_id_counts_before_the_id(driver: LedgerDriver) -> None:
    """A repeat with a request id returns the job of that request id, whatever job id it carries."""
    driver.submit_keyed("a", "k")
    driver.submit("b", payload=b"other")
    assert driver.submit_keyed("b", "k").job_ids == ["a"]


def test_id_still_finds_its_job_when_the_request_id_is_no_longer_kept() -> None:
    """A job id still detects a repeat after the request id was dropped."""
    driver = LedgerDriver(dedup_keys_max=1)
    driver.submit_keyed("a", "k1")
    driver.submit_keyed("b", "k2")
    assert driver.submit_keyed("a", "k1").existing == frozenset({0})
    driver.check()


def test_id_of_an_evicted_job_is_free() -> None:
    """Once a job is evicted, a submit with its id creates a new job."""
    driver = LedgerDriver()
    driver.submit("a")
    driver.finish("a")
    driver.evict(retain_jobs=0)
    decided = driver.decide(commands.Submit([ECHO], [NewJob("a", 0)]))
    assert isinstance(decided, commands.Decision)
    assert decided.event is not None


@pytest.mark.parametrize(
    "job_id", ["", "a", ID.upper(), f"{{{ID}}}", ID.replace("-", ""), f"{ID}0", f"urn:uuid:{ID}", f"{ID}\n"]
)
def test_given_id_that_is_no_uuid_is_refused(driver: LedgerDriver, job_id: str) -> None:
    """The ledger refuses a client's id that is not a canonical UUID, and accepts the other jobs of the batch."""
    reply = driver.do(commands.Submit([ECHO], [NewJob(job_id, 0), NewJob(ID, 0)], are_ids_given=True))
    assert (reply.job_ids, reply.refusals[0].reason) == (["", ID], "JOB_ID_INVALID")
