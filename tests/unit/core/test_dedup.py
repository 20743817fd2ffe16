"""Request keys: one job per key, as long as the key is kept."""

from holdfast.core import commands
from holdfast.core.model import Extra, NewJob, Template
from holdfast.errors import Code
from tests.unit.core.desk import Desk


def test_repeated_request_gets_the_first_job(desk: Desk) -> None:
    """The same submission under the same key makes one job, and says which."""
    assert desk.submit_keyed("a", "k").existing == frozenset()
    again = desk.submit_keyed("b", "k")
    assert (again.job_ids, again.existing, again.refusals) == (["a"], frozenset({0}), {})
    assert desk.ledger.job("b") is None
    assert desk.ledger.position == 1


def test_repeat_is_known_in_every_state_of_its_job(desk: Desk) -> None:
    """A key stands for its job while it waits, while it runs and after it has ended."""
    desk.submit_keyed("a", "k")
    lease = desk.run_one()
    assert desk.submit_keyed("b", "k").job_ids == ["a"]
    desk.report("a", lease.token)
    assert desk.submit_keyed("c", "k").job_ids == ["a"]


def test_other_payload_under_a_key_is_refused(desk: Desk) -> None:
    """Another job under a used key is refused, is not called a repeat, and changes nothing."""
    desk.submit_keyed("a", "k", b"one")
    reply = desk.submit_keyed("b", "k", b"two")
    assert (reply.job_ids, reply.existing) == ([""], frozenset())
    assert (reply.refusals[0].code, reply.refusals[0].reason) == (
        Code.FAILED_PRECONDITION,
        "REQUEST_ID_REUSED",
    )


def test_other_type_under_a_key_is_refused(desk: Desk) -> None:
    """What a job is runs under the key too: another template is another job."""
    desk.submit_keyed("a", "k")
    assert desk.submit_keyed("b", "k", template=Template("other")).job_ids == [""]


def test_another_due_time_is_still_the_same_request(desk: Desk) -> None:
    """A repeat that names a later time is a repeat: the clock has moved on since the first try."""
    desk.submit_keyed("a", "k")
    again = desk.submit("b", not_before_ms=desk.log_ms + 5, extra=Extra(request_id="k"))
    assert again.job_ids == ["a"]


def test_another_trace_is_still_the_same_request(desk: Desk) -> None:
    """Headers travel with a job and are no part of what it is, for each try has a trace of its own."""
    first = Extra(request_id="k", headers=(("traceparent", "1"),), labels=(("a", "b"),))
    desk.submit("a", extra=first)
    second = Extra(request_id="k", headers=(("traceparent", "2"),), labels=(("a", "b"),))
    assert desk.submit("b", extra=second).job_ids == ["a"]
    other = Extra(request_id="k", labels=(("a", "c"),))
    assert desk.submit("c", extra=other).job_ids == [""]


def test_twins_in_one_batch_make_one_job(desk: Desk) -> None:
    """Two equal jobs under one key in a batch are one, and a third that differs is refused."""
    jobs = [
        NewJob(job_id, 0, payload, 0, Extra(request_id="k"))
        for job_id, payload in [("a", b""), ("b", b""), ("c", b"x")]
    ]
    reply = desk.do(commands.Submit([Template("echo")], jobs))
    assert reply.job_ids == ["a", "a", ""]
    assert (reply.existing, set(reply.refusals)) == (frozenset({1}), {2})


def test_key_goes_with_its_job(desk: Desk) -> None:
    """Once a job is forgotten its key is free for another one."""
    desk.submit_keyed("a", "k", b"one")
    desk.finish("a")
    desk.evict(retain_jobs=0)
    assert desk.submit_keyed("b", "k", b"two").job_ids == ["b"]


def test_bounded_keys_are_dropped_first_in_first_out() -> None:
    """With a bound the oldest key goes, and asking for a key does not make it younger."""
    desk = Desk(dedup_keys_max=2)
    desk.submit_keyed("a", "k1")
    desk.submit_keyed("b", "k2")
    assert desk.submit_keyed("x", "k1").job_ids == ["a"]
    desk.submit_keyed("c", "k3")
    assert len(desk.ledger.book.dedup) == 2
    assert desk.submit_keyed("y", "k2").job_ids == ["b"]
    assert desk.submit_keyed("d", "k1").job_ids == ["d"]
    desk.check()


def test_forgotten_job_does_not_take_a_key_that_stands_for_a_newer_one() -> None:
    """Where a dropped key was used again, forgetting the older job leaves the newer one its key."""
    desk = Desk(dedup_keys_max=1)
    desk.submit_keyed("a", "k1")
    desk.submit_keyed("b", "k2")
    desk.submit_keyed("c", "k1")
    desk.finish("a")
    desk.evict(retain_jobs=0)
    assert desk.submit_keyed("d", "k1").job_ids == ["c"]
    desk.check()


def test_keys_survive_restart_and_snapshot(desk: Desk) -> None:
    """A repeat after a restart, from the log or from a snapshot, gets the job of before."""
    desk.submit_keyed("a", "k")
    for ledger in (desk.replayed(), desk.reloaded()):
        desk.restart(ledger)
        assert desk.submit_keyed("b", "k").job_ids == ["a"]
