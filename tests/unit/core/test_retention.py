"""How long finished jobs are kept: by age, by number, by bytes, oldest first."""

from holdfast.core import commands
from tests.unit.core.desk import Desk


def _kept(desk: Desk) -> list[str]:
    return list(desk.ledger.book.jobs)


def test_finished_jobs_go_when_they_are_old_enough(desk: Desk) -> None:
    """A job is kept for less than `retain_ms` after it finished, and goes at that millisecond."""
    desk.submit("a")
    desk.finish("a")
    desk.pass_ms(99)
    assert desk.evict(retain_ms=100) == 0
    desk.pass_ms(1)
    assert desk.evict(retain_ms=100) == 1
    assert _kept(desk) == []


def test_oldest_finished_jobs_go_when_there_are_too_many(desk: Desk) -> None:
    """Beyond the number retained the jobs that finished first go, whenever they were submitted."""
    desk.submit(*"abcd")
    desk.cancel("c")
    desk.finish("a", "b")
    assert desk.evict(retain_jobs=2) == 1
    assert _kept(desk) == ["a", "b", "d"]


def test_oldest_finished_jobs_go_when_they_hold_too_much(desk: Desk) -> None:
    """Payloads and outputs of finished jobs count; the oldest go until the rest fits."""
    desk.submit("a", "b", "c", payload=b"x" * 60)
    desk.finish("a", "b", "c", output=b"y" * 40)
    assert desk.evict(retain_bytes=300) == 0
    assert desk.evict(retain_bytes=299) == 1
    assert _kept(desk) == ["b", "c"]


def test_waiting_and_running_jobs_are_never_forgotten(desk: Desk) -> None:
    """Retention is for finished jobs only, however little is retained."""
    desk.submit("a", "b")
    desk.lease(1)
    assert desk.evict(0, 0, 0) == 0
    assert _kept(desk) == ["a", "b"]


def test_one_event_forgets_a_bounded_number(desk: Desk) -> None:
    """A backlog of a thousand and one finished jobs takes two events."""
    for batch in range(2):
        desk.submit(*(f"{batch}-{n}" for n in range(501)))
    for job_id in _kept(desk):
        desk.cancel(job_id)
    assert desk.evict(retain_jobs=0) == 1_000
    assert desk.evict(retain_jobs=0) == 2
    assert desk.evict(retain_jobs=0) == 0


def test_nothing_to_forget_is_no_event(desk: Desk) -> None:
    """A visit of the cleaner that finds nothing leaves the log as it is."""
    desk.submit("a")
    assert desk.decide(commands.Evict(0, 0, 0)) == commands.Decision(None, 0)


def test_forgotten_job_is_gone_for_every_reader(desk: Desk) -> None:
    """A forgotten job is not found, not listed, not to be canceled and not reportable."""
    desk.submit("a")
    desk.finish("a")
    desk.evict(0)
    assert desk.ledger.job("a") is None
    assert desk.ledger.page([], 0, 5, newest_first=False) == ([], False)
    assert desk.cancel("a").reason == "JOB_NOT_FOUND"
    assert desk.report("a", 1) == "UNKNOWN_JOB"


def test_bytes_held_return_to_zero(desk: Desk) -> None:
    """Every byte that was counted when it came is given back when its job is forgotten."""
    desk.submit("a", "b", payload=b"x" * 10)
    desk.finish("a", output=b"y" * 5)
    desk.cancel("b")
    assert desk.ledger.book.bytes_held == 25
    desk.evict(0)
    assert (desk.ledger.book.bytes_held, desk.ledger.book.finished_bytes) == (0, 0)
