"""Data of the job owner: its events and images decode to the written state, or raise the documented error."""

from holdfast.core.lifecycle import QUEUED, RUNNING, State
from holdfast.topologies.microservices.state.records import Records
from tests.fuzz.owners import fuzz_owner, owner_seeds
from tests.unit.topologies.microservices.test_records import Desk


def seeds() -> list[bytes]:
    """A few jobs in several states, with their events."""
    desk = Desk()
    desk.create("a", payload=b"p", request_id="key")
    desk.create("a", request_id="key")
    desk.create("b", unique_key="u")
    token = desk.start("a")
    desk.move("a", RUNNING, State.DONE, token=token)
    desk.move("b", QUEUED, State.CANCELED, reason="enough")
    desk.create("c")
    desk.start("c")
    return owner_seeds(desk.journal, desk.records)


def fuzz(data: bytes) -> None:
    """Reads an image, or a frame of events."""
    fuzz_owner(Records, data)
