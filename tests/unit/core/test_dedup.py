"""Request ids: one job per request id, for as long as the request id is kept."""

from holdfast.core import commands
from holdfast.core.model import Extra, NewJob, Template
from holdfast.errors import Code
from tests.unit.core.ledger_driver import LedgerDriver


def test_repeated_request_gets_the_first_job(driver: LedgerDriver) -> None:
    """The same submit with the same request id creates one job, and the repeat returns its id as existing."""
    assert driver.submit_keyed("a", "k").existing == frozenset()
    again = driver.submit_keyed("b", "k")
    assert (again.job_ids, again.existing, again.refusals) == (["a"], frozenset({0}), {})
    assert driver.ledger.job("b") is None
    assert driver.ledger.position == 1


def test_repeat_is_known_in_every_state_of_its_job(driver: LedgerDriver) -> None:
    """A request id refers to its job while the job waits, while it runs and after it has ended."""
    driver.submit_keyed("a", "k")
    lease = driver.run_one()
    assert driver.submit_keyed("b", "k").job_ids == ["a"]
    driver.report("a", lease.token)
    assert driver.submit_keyed("c", "k").job_ids == ["a"]


def test_other_payload_under_a_key_is_refused(driver: LedgerDriver) -> None:
    """Another job with a used request id is refused, is not reported as existing, and changes nothing."""
    driver.submit_keyed("a", "k", b"one")
    reply = driver.submit_keyed("b", "k", b"two")
    assert (reply.job_ids, reply.existing) == ([""], frozenset())
    assert (reply.refusals[0].code, reply.refusals[0].reason) == (
        Code.FAILED_PRECONDITION,
        "REQUEST_ID_REUSED",
    )


def test_other_type_under_a_key_is_refused(driver: LedgerDriver) -> None:
    """A submit with a used request id and another template is refused."""
    driver.submit_keyed("a", "k")
    assert driver.submit_keyed("b", "k", template=Template("other")).job_ids == [""]


def test_another_due_time_is_still_the_same_request(driver: LedgerDriver) -> None:
    """A repeat with a later due time still counts as a repeat, because the clock has advanced since the first try."""
    driver.submit_keyed("a", "k")
    again = driver.submit("b", not_before_ms=driver.log_ms + 5, extra=Extra(request_id="k"))
    assert again.job_ids == ["a"]


def test_another_trace_is_still_the_same_request(driver: LedgerDriver) -> None:
    """A repeat with other headers still counts as a repeat, because each try has its own trace."""
    first = Extra(request_id="k", headers=(("traceparent", "1"),), labels=(("a", "b"),))
    driver.submit("a", extra=first)
    second = Extra(request_id="k", headers=(("traceparent", "2"),), labels=(("a", "b"),))
    assert driver.submit("b", extra=second).job_ids == ["a"]
    other = Extra(request_id="k", labels=(("a", "c"),))
    assert driver.submit("c", extra=other).job_ids == [""]


def test_twins_in_one_batch_make_one_job(driver: LedgerDriver) -> None:
    """Two equal jobs with one request id in a batch become one job, and a third that differs is refused."""
    jobs = [
        NewJob(job_id, 0, payload, 0, Extra(request_id="k"))
        for job_id, payload in [("a", b""), ("b", b""), ("c", b"x")]
    ]
    reply = driver.do(commands.Submit([Template("echo")], jobs))
    assert reply.job_ids == ["a", "a", ""]
    assert (reply.existing, set(reply.refusals)) == (frozenset({1}), {2})


def test_key_goes_with_its_job(driver: LedgerDriver) -> None:
    """Once a job is evicted, its request id is free for another job."""
    driver.submit_keyed("a", "k", b"one")
    driver.finish("a")
    driver.evict(retain_jobs=0)
    assert driver.submit_keyed("b", "k", b"two").job_ids == ["b"]


def test_bounded_keys_are_dropped_first_in_first_out() -> None:
    """With a limit on request ids the oldest one is dropped, and a lookup does not renew it."""
    driver = LedgerDriver(dedup_keys_max=2)
    driver.submit_keyed("a", "k1")
    driver.submit_keyed("b", "k2")
    assert driver.submit_keyed("x", "k1").job_ids == ["a"]
    driver.submit_keyed("c", "k3")
    assert len(driver.ledger.state.dedup) == 2
    assert driver.submit_keyed("y", "k2").job_ids == ["b"]
    assert driver.submit_keyed("d", "k1").job_ids == ["d"]
    driver.check()


def test_forgotten_job_does_not_take_a_key_that_stands_for_a_newer_one() -> None:
    """If a dropped request id was used again, evicting the older job keeps the request id of the newer job."""
    driver = LedgerDriver(dedup_keys_max=1)
    driver.submit_keyed("a", "k1")
    driver.submit_keyed("b", "k2")
    driver.submit_keyed("c", "k1")
    driver.finish("a")
    driver.evict(retain_jobs=0)
    assert driver.submit_keyed("d", "k1").job_ids == ["c"]
    driver.check()


def test_keys_survive_restart_and_snapshot(driver: LedgerDriver) -> None:
    """A repeat after a restart, from the log or from a snapshot, returns the first job."""
    driver.submit_keyed("a", "k")
    for ledger in (driver.replayed(), driver.reloaded()):
        driver.restart(ledger)
        assert driver.submit_keyed("b", "k").job_ids == ["a"]
