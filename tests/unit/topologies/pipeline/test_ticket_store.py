"""The shelf of a queue process, compared with a simple model."""

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from holdfast.topologies.pipeline.roles.ticket_store import PushResult, TicketFilter, TicketStore

ALL = TicketFilter()


@dataclass(frozen=True)
class Ticket:
    """A ticket for these tests."""

    job_id: str
    number: int = 0
    priority: int = 5
    route: str = "echo"
    queue: str = "default"

    @property
    def order(self) -> int:
        return self.number


@dataclass
class Known:
    """The model's data about one ticket."""

    ticket: Ticket
    drop_ms: float
    arrived_ms: int
    until_ms: int = 0


class TicketStoreMachine(RuleBasedStateMachine):
    """Random pushes, leases, releases and deletions, with time steps between them."""

    def __init__(self) -> None:
        super().__init__()
        self.ticket_store: TicketStore[Ticket] = TicketStore(lane_max=4, aging_ms=0)
        self.model: dict[str, Known] = {}
        self.now_ms = 1_000
        self.number = 0

    def settle(self) -> None:
        for job_id, known in list(self.model.items()):
            if known.until_ms and known.until_ms <= self.now_ms:
                known.until_ms = 0
            if not known.until_ms and known.drop_ms <= self.now_ms:
                del self.model[job_id]

    @rule(
        name=st.integers(0, 12),
        priority=st.integers(4, 6),
        route=st.sampled_from("ab"),
        queue=st.sampled_from("xy"),
        keep_ms=st.sampled_from([0, 50, 200]),
    )
    def push(self, name: int, priority: int, route: str, queue: str, keep_ms: int) -> None:
        self.number += 1
        ticket = Ticket(f"job-{name}", self.number, priority, route, queue)
        in_lane = sum(1 for known in self.model.values() if (known.ticket.queue, known.ticket.route) == (queue, route))
        pushed = self.ticket_store.push(ticket, self.now_ms, keep_ms)
        if ticket.job_id in self.model:
            assert pushed is PushResult.KNOWN
        elif in_lane >= 4:
            assert pushed is PushResult.FULL
        else:
            assert pushed is PushResult.TAKEN
            drop_ms = self.now_ms + keep_ms if keep_ms else float("inf")
            self.model[ticket.job_id] = Known(ticket, drop_ms, self.now_ms)

    @rule(routes=st.sets(st.sampled_from("ab")), queues=st.sets(st.sampled_from("xy")), count=st.integers(0, 4))
    def lease(self, routes: set[str], queues: set[str], count: int) -> None:
        ticket_filter = TicketFilter(frozenset(routes), frozenset(queues))
        found = self.ticket_store.lease(ticket_filter, "w", count, 100, self.now_ms)
        self.settle()  # a lease drops tickets that were put back after their time
        free = [
            known
            for known in self.model.values()
            if not known.until_ms
            and (not routes or known.ticket.route in routes)
            and (not queues or known.ticket.queue in queues)
        ]
        free.sort(key=lambda known: (-known.ticket.priority, known.ticket.number))
        assert found == [known.ticket for known in free[:count]]
        for known in free[:count]:
            known.until_ms = self.now_ms + 100

    @rule(names=st.sets(st.integers(0, 12)), holder=st.sampled_from(["", "w", "other"]))
    def release(self, names: set[int], holder: str) -> None:
        named = [self.model[job_id] for name in sorted(names) if (job_id := f"job-{name}") in self.model]
        taken = [known.ticket.job_id for known in named if known.until_ms]
        expected = taken if holder in {"", "w"} else []
        back = self.ticket_store.release([f"job-{name}" for name in sorted(names)], holder)
        assert [ticket.job_id for ticket in back] == expected
        for job_id in expected:
            self.model[job_id].until_ms = 0

    @rule(names=st.sets(st.integers(0, 12)))
    def delete(self, names: set[int]) -> None:
        job_ids = [f"job-{name}" for name in names]
        assert self.ticket_store.delete(job_ids) == sum(self.model.pop(job_id, None) is not None for job_id in job_ids)

    @rule(passed_ms=st.integers(1, 120))
    def wait(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        self.ticket_store.advance(self.now_ms)
        self.settle()

    @invariant()
    def counts_agree(self) -> None:
        assert len(self.ticket_store) == len(self.model)
        assert self.ticket_store.taken == sum(1 for known in self.model.values() if known.until_ms)
        assert sum(self.ticket_store.lanes().values()) == len(self.model)
        assert {entry.ticket.job_id for entry in self.ticket_store.all()} == set(self.model)
        waiting = [known.ticket for known in self.model.values() if not known.until_ms]
        waiting.sort(key=lambda ticket: (-ticket.priority, ticket.number))
        assert self.ticket_store.peek(99) == waiting


TicketStoreMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)
TestShelf = TicketStoreMachine.TestCase


def test_patience_overtakes_urgency_with_aging() -> None:
    """With aging, a ticket that has waited long enough goes before a more urgent one that has just arrived."""
    ticket_store: TicketStore[Ticket] = TicketStore(lane_max=10, aging_ms=1_000)
    ticket_store.push(Ticket("patient", 1, priority=5), now_ms=0)
    ticket_store.push(Ticket("urgent", 2, priority=9), now_ms=3_000)
    ticket_store.push(Ticket("later", 3, priority=9), now_ms=5_000)
    assert [ticket.job_id for ticket in ticket_store.lease(ALL, "w", 3, 100, 5_000)] == ["urgent", "patient", "later"]


def test_patience_counts_wherever_it_was_shown() -> None:
    """The waiting time that is passed with a ticket counts, so that a ticket that is pushed again keeps its age."""
    ticket_store: TicketStore[Ticket] = TicketStore(lane_max=10, aging_ms=1_000)
    ticket_store.push(Ticket("urgent", 1, priority=5), now_ms=5_000)
    ticket_store.push(Ticket("patient", 2, priority=2), now_ms=5_000, keep_ms=500, waited_ms=4_000)
    ticket_store.push(Ticket("fresh", 3, priority=2), now_ms=5_000, keep_ms=500)
    assert [ticket.job_id for ticket in ticket_store.lease(ALL, "w", 3, 100, 5_000)] == ["patient", "urgent", "fresh"]
    assert ticket_store.next_ms() == 5_100


def test_next_instant_is_when_something_happens() -> None:
    """The next instant is the end of a lease or the drop of a ticket, whichever is first."""
    ticket_store: TicketStore[Ticket] = TicketStore(lane_max=10)
    assert ticket_store.next_ms() is None
    ticket_store.push(Ticket("a"), now_ms=0, keep_ms=500)
    assert ticket_store.next_ms() == 500
    ticket_store.lease(ALL, "w", 1, 100, 10)
    assert ticket_store.next_ms() == 110
    assert [ticket.job_id for ticket in ticket_store.advance(110)] == ["a"]
    ticket_store.advance(500)
    assert len(ticket_store) == 0


@pytest.mark.parametrize("rounds", [1_000])
def test_memory_follows_the_present_tickets(rounds: int) -> None:
    """However many tickets pass through, the memory beside the present tickets stays small."""
    ticket_store: TicketStore[Ticket] = TicketStore(lane_max=10)
    ticket_store.push(Ticket("first", 0), 0)
    for number in range(1, rounds):
        ticket_store.push(Ticket(f"job-{number}", number), 0, keep_ms=10_000)
        ticket_store.delete([f"job-{number}"])
    assert len(ticket_store._times) < 200
    assert sum(map(len, ticket_store._waiting.values())) < 200
