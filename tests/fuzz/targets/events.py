"""The body of a frame: events that can be written again as they were read, or the documented error."""

import msgspec

from holdfast.core import events
from tests.unit.core.desk import Desk
from tests.unit.core.test_image import EVENTS, eventful


def seeds() -> list[bytes]:
    """One event of each kind, and those of an eventful life."""
    return [*(events.join([events.encode_one(event)]) for event in EVENTS), *eventful(Desk()).bodies]


def fuzz(data: bytes) -> None:
    """Reads a body."""
    try:
        found = events.decode(data)
    except msgspec.MsgspecError:
        return
    again = events.join([events.encode_one(event) for event in found])
    assert events.decode(again) == found
