"""Data of the queue owner: its events and images decode to the written state, or raise the documented error."""

from holdfast.topologies.microservices.state.waiting_jobs import WaitingJobs, WaitingTicket
from tests.fuzz.owners import fuzz_owner, owner_seeds
from tests.unit.topologies.microservices.test_waiting_jobs import NOW_MS, Clerk


def seeds() -> list[bytes]:
    """Tickets of each kind."""
    clerk = Clerk()
    clerk.enqueue("a", WaitingTicket("b", "q", "echo", 9, 7), WaitingTicket("c", not_before_ms=NOW_MS * 2, since_ms=5))
    line = clerk.line
    written = [line.decide_enqueue(WaitingTicket("d", "q"), NOW_MS), line.decide_dequeue("w", None, NOW_MS)]
    return owner_seeds([line.encode(event) for event in written if event is not None], line)  # type: ignore[arg-type]


def fuzz(data: bytes) -> None:
    """Reads an image, or a frame of events."""
    fuzz_owner(lambda: WaitingJobs(60_000), data)
