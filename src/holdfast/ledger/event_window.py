"""Recent events in memory; older ones are in the journal (`past_events.py`).

Invariants:
- A window holds events without a gap, up to the last one applied; it returns only durable events.
- Every durable event is in the window, in the journal, or in both. So a reader that gets the events
  dropped by the window from the journal misses none, and its position prevents duplicates.
- Readers do not delay the window: it drops events above its limits whether they were read or not.
"""

from collections import deque
from collections.abc import Callable
from itertools import islice

import msgspec

from holdfast.core.events import AnyEvent, Noted, Reported
from holdfast.core.footprint import JOB_BYTES
from holdfast.core.ledger import Ledger
from holdfast.ledger.past_events import At

#: Estimated memory of an event without payloads and outputs, and of each job that it names.
_EVENT_BYTES = 200
_ROW_BYTES = 200


class WindowConfig(msgspec.Struct, frozen=True):
    """The limits of the events in memory."""

    events_max: int = 20_000
    bytes_max: int = 16 << 20


#: Without a journal on disk, the window is the only history.
MEMORY_WINDOW = WindowConfig(events_max=200_000, bytes_max=64 << 20)


class EventWindow:
    """The newest events, by reference. An observer of the coordinator."""

    def __init__(self, position: int, config: WindowConfig, held: int = 0) -> None:
        """`position` is the last one before the window, and durable; `held` is the state's `bytes_held` there."""
        self._config = config
        self._events: deque[tuple[AnyEvent, int]] = deque()
        self._bytes = 0
        self._held = held
        self._first = position + 1
        self._durable = position
        self.listeners: set[Callable[[], None]] = set()

    @property
    def first_position(self) -> int:
        """The oldest position in the window."""
        return self._first

    @property
    def durable_position(self) -> int:
        """The last durable position."""
        return self._durable

    def applied(self, position: int, event: AnyEvent, ledger: Ledger) -> None:
        """Keeps the event; readers get it when it is durable."""
        size = _EVENT_BYTES + _ROW_BYTES * len(ledger.state.moves) + _words(event)
        # Growth of the state beyond the job records approximates the payloads and outputs; measuring each costs more.
        held = ledger.state.bytes_held
        size += max(0, held - self._held - JOB_BYTES * len(ledger.state.moves))
        self._held = held
        self._events.append((event, size))
        self._bytes += size

    def durable(self, position: int) -> None:
        """Drops events above the limits, and notifies the listeners."""
        self._durable = position
        events, config = self._events, self._config
        while events and (len(events) > config.events_max or self._bytes > config.bytes_max):
            self._bytes -= events.popleft()[1]
            self._first += 1
        for listener in self.listeners:
            listener()

    def bug(self, command: object, error: Exception) -> None:
        """Does nothing: a failed command has no event."""

    def after(self, position: int, count: int) -> list[At]:
        """Returns up to `count` durable events past a position, which must not be before the window."""
        skipped = position + 1 - self._first
        assert skipped >= 0, "the window no longer reaches back to this position"
        count = min(count, self._durable - position)
        found = islice(self._events, skipped, skipped + max(0, count))
        return [(at, event) for at, (event, _) in enumerate(found, position + 1)]


def _words(event: AnyEvent) -> int:
    """Estimates the memory for texts in an event that are part of no job."""
    if isinstance(event, Noted):
        return sum(_ROW_BYTES + len(note.message) + sum(map(len, note.lines)) for note in event.notes)
    return _ROW_BYTES * len(event.refused) if isinstance(event, Reported) else 0
