"""The body of a frame: events that encode and decode to the same again, or the documented error."""

import msgspec

from holdfast.core import events
from tests.fuzz.depth import deepened
from tests.unit.core.ledger_driver import LedgerDriver
from tests.unit.core.test_image import EVENTS, eventful


def seeds() -> list[bytes]:
    """One event of each kind, as now and as of a later version, and those of an eventful history."""
    encoded = [events.encode_one(event) for event in EVENTS]
    single = [events.join([data]) for one in encoded for data in (one, deepened(one))]
    return [*single, *eventful(LedgerDriver()).bodies]


def fuzz(data: bytes) -> None:
    """Decodes a body."""
    try:
        found = events.decode(data)
    except msgspec.MsgspecError:
        return
    again = events.join([events.encode_one(event) for event in found])
    assert events.decode(again) == found
