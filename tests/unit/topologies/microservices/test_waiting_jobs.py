"""The line of waiting jobs: order, refusals and encoding."""

import msgspec
import pytest

from holdfast import limits
from holdfast.core.commands import Refusal
from holdfast.core.lane_order import RouteFilter
from holdfast.errors import Code
from holdfast.topologies.microservices.state.waiting_jobs import (
    Dequeued,
    Enqueued,
    LineEvent,
    Removed,
    WaitingJobs,
    WaitingTicket,
)

NOW_MS = 1_000_000


class Clerk:
    """Decides and applies at once, at a time that a test controls."""

    def __init__(self, aging_ms: int = 60_000) -> None:
        self.line = WaitingJobs(aging_ms)
        self.now_ms = NOW_MS

    def enqueue(self, *tickets: WaitingTicket | str) -> None:
        for ticket in tickets:
            event = self.line.decide_enqueue(WaitingTicket(ticket) if isinstance(ticket, str) else ticket, self.now_ms)
            assert isinstance(event, Enqueued)
            self.line.apply(event)

    def dequeue(self, wanted: RouteFilter | None = None) -> str:
        event = self.line.decide_dequeue("w", wanted, self.now_ms)
        if event is None:
            return ""
        self.line.apply(event)
        return event.job_id

    def rest(self, wanted: RouteFilter | None = None) -> list[str]:
        return list(iter(lambda: self.dequeue(wanted), ""))


def wanted(*routes: str, queues: tuple[str, ...] = ()) -> RouteFilter:
    return RouteFilter(frozenset(routes), frozenset(queues))


def test_jobs_without_an_order_leave_as_they_came() -> None:
    """Jobs without an order leave first in, first out."""
    clerk = Clerk()
    clerk.enqueue("c", "a", "b")
    assert clerk.rest() == ["c", "a", "b"]


def test_order_counts_and_not_the_arrival() -> None:
    """Jobs that arrive out of order, or come back, take the place that their order gives them."""
    clerk = Clerk()
    clerk.enqueue(WaitingTicket("b", order=2), WaitingTicket("d", order=4), WaitingTicket("a", order=1))
    assert clerk.dequeue() == "a"
    clerk.enqueue(WaitingTicket("c", order=3), WaitingTicket("a", order=1))
    assert clerk.rest() == ["a", "b", "c", "d"]


def test_job_without_an_order_stands_behind_all_that_came() -> None:
    """A job without an order overtakes no job, and jobs with a higher order that arrive later do not overtake it."""
    clerk = Clerk()
    clerk.enqueue(WaitingTicket("b", order=7), "x", "y", WaitingTicket("c", order=8), WaitingTicket("a", order=6))
    assert clerk.rest() == ["a", "b", "x", "y", "c"]


def test_jobs_of_one_order_are_all_there() -> None:
    """Two jobs with the same order leave in the order of their arrival, and none is lost."""
    clerk = Clerk()
    clerk.enqueue(
        WaitingTicket("b", order=5), WaitingTicket("a", order=5), WaitingTicket("c", order=(1 << 64) - 1), "d"
    )
    assert clerk.rest() == ["b", "a", "c", "d"]


def test_id_that_waits_is_left_as_it_is() -> None:
    """Enqueuing an id that already waits changes nothing, not even its priority or its time."""
    clerk = Clerk()
    clerk.enqueue("a", "b")
    before = clerk.line.digest
    again = WaitingTicket("b", "other", "route", 9, 1, NOW_MS + 1)
    assert clerk.line.decide_enqueue(again, NOW_MS) is None
    assert clerk.line.digest == before
    assert clerk.rest() == ["a", "b"]


def test_dequeue_finds_only_jobs_of_the_named_routes_and_queues() -> None:
    """A dequeue finds only jobs of the named routes, and of the named queues or of all queues if none is named."""
    clerk = Clerk()
    clerk.enqueue(WaitingTicket("a", route="x"), WaitingTicket("b", "slow", route="y"), WaitingTicket("c", route="y"))
    assert clerk.dequeue(wanted()) == ""
    assert clerk.dequeue(wanted("z")) == ""
    assert clerk.dequeue(wanted("x", queues=("slow",))) == ""
    assert clerk.dequeue(wanted("y", queues=("default", "other"))) == "c"
    assert clerk.rest(wanted("x", "y")) == ["a", "b"]


def test_delayed_job_is_not_found_before_its_time() -> None:
    """A delayed job is not found before its due millisecond, and then takes the place of its order."""
    clerk = Clerk()
    clerk.enqueue(WaitingTicket("a", order=1, not_before_ms=NOW_MS + 10), WaitingTicket("b", order=2))
    assert clerk.dequeue() == "b"
    clerk.enqueue(WaitingTicket("b", order=2))
    clerk.now_ms += 9
    assert clerk.dequeue() == "b"
    clerk.enqueue(WaitingTicket("b", order=2))
    clerk.now_ms += 1
    assert clerk.rest() == ["a", "b"]


def test_priority_is_worth_waiting_time() -> None:
    """A step of priority overtakes jobs that arrived less than `aging_ms` before, and no older ones."""
    clerk = Clerk(aging_ms=100)
    clerk.enqueue(WaitingTicket("old", priority=5, order=1))
    clerk.now_ms += 50
    clerk.enqueue(WaitingTicket("young", priority=5, order=2, route="other"))
    clerk.now_ms += 100
    clerk.enqueue(WaitingTicket("urgent", priority=6, order=3))
    assert clerk.rest() == ["old", "young", "urgent"], "the order decides the tie of the last two"
    clerk = Clerk(aging_ms=0)
    clerk.enqueue(WaitingTicket("old", priority=5), WaitingTicket("urgent", priority=6))
    assert clerk.rest() == ["urgent", "old"]


def test_waiting_counts_since_the_time_that_is_named() -> None:
    """A job that comes back keeps its age, and an arrival time in the future counts as now."""
    clerk = Clerk(aging_ms=100)
    clerk.enqueue(WaitingTicket("urgent", priority=6), WaitingTicket("patient", priority=5, since_ms=NOW_MS - 101))
    assert clerk.rest() == ["patient", "urgent"]
    clerk.enqueue(WaitingTicket("a", since_ms=NOW_MS + 1_000_000, priority=5))
    clerk.now_ms += 1
    clerk.enqueue(WaitingTicket("b", priority=5, route="other"))
    assert clerk.rest() == ["a", "b"]


def test_removed_job_is_gone_wherever_it_stood() -> None:
    """A remove takes a job out of the middle of a lane or out of the delayed jobs, and only once."""
    clerk = Clerk()
    clerk.enqueue("a", "b", "c", WaitingTicket("later", not_before_ms=NOW_MS + 5))
    for job_id in ("b", "later"):
        event = clerk.line.decide_remove(job_id, NOW_MS)
        assert event == Removed(NOW_MS, job_id)
        clerk.line.apply(event)
        assert clerk.line.decide_remove(job_id, NOW_MS) is None
    clerk.now_ms += 5
    assert clerk.rest() == ["a", "c"]
    assert len(clerk.line) == 0


@pytest.mark.parametrize("not_before_ms", [-1, NOW_MS + 2 * limits.DELAY_MS_MAX + 1])
def test_job_that_is_never_due_is_refused(not_before_ms: int) -> None:
    """An enqueue with a due time before 1970 or years ahead is refused, whether the job waits already or not."""
    clerk = Clerk()
    clerk.enqueue("a")
    for job_id in ("a", "b"):
        refusal = clerk.line.decide_enqueue(WaitingTicket(job_id, not_before_ms=not_before_ms), NOW_MS)
        assert isinstance(refusal, Refusal)
        assert refusal.code == Code.INVALID_ARGUMENT


def test_line_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limits of jobs and lanes new jobs are refused as retryable, and waiting jobs are still found."""
    clerk = Clerk()
    clerk.enqueue("a", WaitingTicket("b", route="other"))
    monkeypatch.setattr(limits, "LANES_MAX", 2)
    assert refused(clerk, WaitingTicket("c", route="third"))
    clerk.enqueue("c")
    monkeypatch.setattr(limits, "JOBS_HELD_MAX", 3)
    assert refused(clerk, WaitingTicket("d"))
    assert clerk.line.decide_enqueue(WaitingTicket("a"), NOW_MS) is None
    assert clerk.rest() == ["a", "b", "c"]


def refused(clerk: Clerk, ticket: WaitingTicket) -> bool:
    refusal = clerk.line.decide_enqueue(ticket, NOW_MS)
    return isinstance(refusal, Refusal) and refusal.code == Code.RESOURCE_EXHAUSTED


def test_image_keeps_nothing_of_removed_jobs() -> None:
    """After thousands of jobs were enqueued and removed, the image is as small as before."""
    clerk = Clerk()
    clerk.enqueue("stays")
    for number in range(5_000):
        clerk.enqueue(WaitingTicket(f"job-{number}", not_before_ms=NOW_MS + 5 if number % 2 else 0))
        clerk.line.apply(Removed(NOW_MS, f"job-{number}"))
    clerk.line.audit()
    assert sum(map(len, clerk.line.image())) < 100
    lane = clerk.line._ready.lanes["default", "sim", 5]
    assert len(lane.returned) + len(clerk.line._ready._delayed) < 200


def test_events_are_written_as_ever() -> None:
    """The bytes of events and the digest are part of the format on disk, so that a change needs a new version."""
    line = WaitingJobs(60_000)
    events: list[LineEvent] = [
        Enqueued(7, WaitingTicket("a", "q", "r", 3, 9, 11, 5)),
        Enqueued(8, WaitingTicket("b")),
        Dequeued(12, "b", "w"),
        Removed(13, "a"),
    ]
    assert [line.encode(event).hex() for event in events] == [
        "93010797a161a171a17203090b05",
        "93010897a162a764656661756c74a373696d05000000",
        "94020ca162a177",
        "93030da161",
    ]
    assert [line.decode(line.encode(event)) for event in events] == events
    for event in events[:2]:
        line.apply(event)
    assert (line.digest_version, line.digest) == (2, 16344683966188572388)
    line.rehash(1)
    assert (line.digest_version, line.digest) == (1, 1741237071958405815)


def test_strange_bytes_are_not_taken() -> None:
    """The state refuses an event and an image with unknown or modified bytes."""
    line = WaitingJobs(60_000)
    line.apply(Enqueued(1, WaitingTicket("a")))
    head, rows = line.image()
    with pytest.raises(msgspec.ValidationError):
        line.decode(b"\x93\x09\x07\xa1a")
    for chunks in ([], [rows], [head], [head, rows.replace(b"sim", b"sin")]):
        with pytest.raises(msgspec.ValidationError):
            WaitingJobs(60_000).restore(chunks)
