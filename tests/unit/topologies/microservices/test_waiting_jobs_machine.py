"""Random histories of a line, compared with a list that is searched linearly."""

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from holdfast.core.lane_order import RouteFilter
from holdfast.topologies.microservices.state.waiting_jobs import Enqueued, LineEvent, WaitingJobs, WaitingTicket

IDS = st.sampled_from([f"job-{number}" for number in range(12)])
ROUTES = ["x", "y"]
QUEUES = ["default", "other"]
TICKETS = st.builds(
    WaitingTicket,
    IDS,
    st.sampled_from(QUEUES),
    st.sampled_from(ROUTES),
    st.sampled_from([0, 5, 9]),
    st.integers(0, 6),
    st.integers(0, 120),
    st.integers(0, 120),
)
WANTED = st.none() | st.builds(
    RouteFilter, st.frozensets(st.sampled_from(ROUTES)), st.frozensets(st.sampled_from([*QUEUES, "none"]))
)


@dataclass
class Waiting:
    """One job of the model, with all values that determine its turn."""

    ticket: WaitingTicket
    place: tuple[int, int]
    since_ms: int

    @property
    def lane(self) -> tuple[str, str, int]:
        return self.ticket.queue, self.ticket.route, self.ticket.priority


class Model:
    """The rule in its simplest form."""

    def __init__(self, aging_ms: int) -> None:
        self.aging_ms = aging_ms
        self.waiting: dict[str, Waiting] = {}
        self.arrivals = 0
        self.highest = 0

    def enqueue(self, ticket: WaitingTicket, now_ms: int) -> bool:
        if ticket.job_id in self.waiting:
            return False
        self.arrivals += 1
        self.highest = max(self.highest, ticket.order)
        since_ms = ticket.since_ms if 0 < ticket.since_ms < now_ms else now_ms
        place = (ticket.order or self.highest, self.arrivals)
        self.waiting[ticket.job_id] = Waiting(ticket, place, since_ms)
        return True

    def next(self, is_wanted: Callable[[Waiting], bool], now_ms: int) -> str:
        due = [job for job in self.waiting.values() if job.ticket.not_before_ms <= now_ms and is_wanted(job)]
        heads = [job for job in due if all(job.place <= other.place for other in due if other.lane == job.lane)]
        return min(heads, key=self._turn).ticket.job_id if heads else ""

    def _turn(self, job: Waiting) -> tuple[int, tuple[int, int]]:
        ticket = job.ticket
        if not self.aging_ms:
            return -ticket.priority, job.place
        return max(job.since_ms, ticket.not_before_ms) - ticket.priority * self.aging_ms, job.place


class WaitingJobsMachine(RuleBasedStateMachine):
    """Runs random commands in any order, over restarts from an image and from the journal."""

    aging_ms = 20

    def __init__(self) -> None:
        super().__init__()
        self.line = WaitingJobs(self.aging_ms)
        self.model = Model(self.aging_ms)
        self.now_ms = 0
        self.journal: list[bytes] = []

    def _apply(self, event: LineEvent) -> None:
        assert event.at_ms == self.now_ms
        self.journal.append(self.line.encode(event))
        self.line.apply(event)

    @rule(step_ms=st.integers(1, 30))
    def wait(self, step_ms: int) -> None:
        """Advances the time."""
        self.now_ms += step_ms

    @rule(ticket=TICKETS)
    def enqueue(self, ticket: WaitingTicket) -> None:
        """Enqueues a job, which may be waiting already."""
        event = self.line.decide_enqueue(ticket, self.now_ms)
        assert (event is not None) == self.model.enqueue(ticket, self.now_ms)
        if event is not None:
            assert isinstance(event, Enqueued)
            self._apply(event)

    @rule(wanted=WANTED)
    def dequeue(self, wanted: RouteFilter | None) -> None:
        """Dequeues the next job."""
        event = self.line.decide_dequeue("w", wanted, self.now_ms)

        def is_wanted(job: Waiting) -> bool:
            if wanted is None:
                return True
            return job.ticket.route in wanted.routes and (not wanted.queues or job.ticket.queue in wanted.queues)

        expected = self.model.next(is_wanted, self.now_ms)
        assert (event.job_id if event else "") == expected
        if event is not None:
            del self.model.waiting[expected]
            self._apply(event)

    @rule(job_id=IDS)
    def remove(self, job_id: str) -> None:
        """Removes a job from the line."""
        event = self.line.decide_remove(job_id, self.now_ms)
        assert (event is not None) == (job_id in self.model.waiting)
        if event is not None:
            del self.model.waiting[job_id]
            self._apply(event)

    @rule()
    def restart_from_an_image(self) -> None:
        """Continues from an image, which dumps to the same bytes again."""
        before, chunks = self.line, list(self.line.image())
        self.line = WaitingJobs(self.aging_ms)
        self.line.restore(chunks)
        assert list(self.line.image()) == chunks
        assert self.line.digest == before.digest

    @rule()
    def restart_from_the_journal(self) -> None:
        """Continues from all events of the journal."""
        before = self.line
        self.line = WaitingJobs(self.aging_ms)
        for data in self.journal:
            self.line.apply(self.line.decode(data))
        assert list(self.line.image()) == list(before.image())
        assert self.line.digest == before.digest

    @invariant()
    def line_holds_what_the_model_holds(self) -> None:
        """The line holds the same jobs as the model, and the audit passes."""
        assert len(self.line) == len(self.model.waiting)
        assert all(job_id in self.line for job_id in self.model.waiting)
        self.line.audit()


class StrictWaitingJobsMachine(WaitingJobsMachine):
    """The same with strict priority."""

    aging_ms = 0


TestLine = WaitingJobsMachine.TestCase
TestLine.settings = settings(max_examples=150, stateful_step_count=40)
TestStrictLine = StrictWaitingJobsMachine.TestCase
TestStrictLine.settings = settings(max_examples=50, stateful_step_count=40)
