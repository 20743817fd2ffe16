"""Data of the result owner: its events and images decode to the written state, or raise the documented error."""

from holdfast.core.lifecycle import DONE, FAILED
from holdfast.topologies.microservices.state.envelopes import Envelope, Envelopes
from tests.fuzz.owners import fuzz_owner, owner_seeds
from tests.unit.topologies.microservices.test_envelopes import PLENTY, store


def seeds() -> list[bytes]:
    """Two envelopes, and the events that store a third."""
    envelopes = Envelopes(PLENTY)
    store(envelopes, Envelope("a", DONE, 5, "words", b"out"))
    store(envelopes, Envelope("b", FAILED, 6, "", b""))
    written = [envelopes.decide_store(Envelope(name, DONE, 1, "", b"x"), 2).event for name in ("c", "a")]
    return owner_seeds([envelopes.encode(event) for event in written], envelopes)


def fuzz(data: bytes) -> None:
    """Reads an image, or a frame of events."""
    fuzz_owner(lambda: Envelopes(PLENTY), data)
