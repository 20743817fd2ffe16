"""What happened lately, from memory, and what happened before, from the journal.

Invariants:
- A window holds events without a gap, up to the last one applied; only what is durable is given out.
- Every durable event is in the window, or in the journal, or both; so a reader that goes to the journal for what the
  window has dropped misses nothing, and by its position it takes nothing twice.
- Readers hold nothing: the window drops what is over its bounds whether they have seen it or not.
"""

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import Generic, TypeVar

import msgspec

from holdfast.core.events import AnyEvent, Noted, Reported
from holdfast.core.footprint import JOB_BYTES
from holdfast.core.history import Entry
from holdfast.core.ledger import Ledger
from holdfast.errors import NotFoundError
from holdfast.journal.disk import Disk
from holdfast.journal.errors import PositionRemovedError
from holdfast.journal.file import FileJournal
from holdfast.journal.pins import pin
from holdfast.ledger import time_travel
from holdfast.ledger.job_index import JobIndex

#: About what an event takes in memory besides payloads and outputs, and each job that it names.
_EVENT_BYTES = 200
_ROW_BYTES = 200

T = TypeVar("T")
At = tuple[int, AnyEvent]


class WindowConfig(msgspec.Struct, frozen=True):
    """How much of the past stays in memory."""

    events_max: int = 20_000
    bytes_max: int = 16 << 20


#: Where there is no journal on disk, the window is all the history there is.
MEMORY_WINDOW = WindowConfig(events_max=200_000, bytes_max=64 << 20)


class EventWindow:
    """The newest events, by reference. An observer of the loop."""

    def __init__(self, position: int, config: WindowConfig, held: int = 0) -> None:
        """`position` is the last one before the window begins; it is durable. `held` is what the book holds there."""
        self._config = config
        self._events: deque[tuple[AnyEvent, int]] = deque()
        self._bytes = 0
        self._held = held
        self._first = position + 1
        self._durable = position
        self.listeners: set[Callable[[], None]] = set()

    @property
    def first_position(self) -> int:
        """The oldest position that is still here."""
        return self._first

    @property
    def durable_position(self) -> int:
        """The last position that may be told."""
        return self._durable

    def applied(self, position: int, event: AnyEvent, ledger: Ledger) -> None:
        """Keeps the event; it is not told yet."""
        size = _EVENT_BYTES + _ROW_BYTES * len(ledger.book.moves) + _words(event)
        # What it has added to the book is what it carries, beside the records; looking at each would cost more.
        held = ledger.book.bytes_held
        size += max(0, held - self._held - JOB_BYTES * len(ledger.book.moves))
        self._held = held
        self._events.append((event, size))
        self._bytes += size

    def durable(self, position: int) -> None:
        """Lets those who wait know, and drops what is over the bounds."""
        self._durable = position
        events, config = self._events, self._config
        while events and (len(events) > config.events_max or self._bytes > config.bytes_max):
            self._bytes -= events.popleft()[1]
            self._first += 1
        for listener in self.listeners:
            listener()

    def bug(self, command: object, error: Exception) -> None:
        """Nothing happened."""

    def after(self, position: int, count: int) -> list[At]:
        """Up to `count` durable events past a position; the caller has seen that the window reaches back to it."""
        skipped = position + 1 - self._first
        assert skipped >= 0, "the window no longer reaches back so far"
        count = min(count, self._durable - position)
        found = islice(self._events, skipped, skipped + max(0, count))
        return [(at, event) for at, (event, _) in enumerate(found, position + 1)]


def _words(event: AnyEvent) -> int:
    """What an event carries of text that no job keeps."""
    if isinstance(event, Noted):
        return sum(_ROW_BYTES + len(note.message) + sum(map(len, note.lines)) for note in event.notes)
    return _ROW_BYTES * len(event.refused) if isinstance(event, Reported) else 0


class JournalWalk(Generic[T]):
    """A walk over a journal in parts, each of them in whatever thread asks for it.

    It pins what it still needs. `close` may be called at any time, in any thread: what is under way ends first.
    """

    def __init__(self, steps: Generator[T, None, None]) -> None:
        self._steps = steps
        self._is_busy = threading.Lock()
        self._is_closed = False

    def take(self, count: int) -> list[T]:
        """The next steps, fewer only at the end of what was durable when the walk began."""
        try:
            with self._is_busy:
                return [] if self._is_closed else list(islice(self._steps, count))
        except PositionRemovedError as error:
            raise NotFoundError(error.message, reason=error.reason) from error
        finally:
            if self._is_closed:
                self._end()

    def close(self) -> None:
        """Gives files and pins back."""
        self._is_closed = True
        if self._is_busy.acquire(blocking=False):
            self._is_busy.release()
            self._end()

    def _end(self) -> None:
        with self._is_busy:
            self._steps.close()


class JournalPast:
    """What a journal on disk still knows, while its coordinator writes it."""

    def __init__(self, journal: FileJournal, disk: Disk, index: JobIndex) -> None:
        self._journal = journal
        self._disk = disk
        self._index = index
        # Two threads that choose the name of a pin at once would choose the same, and one would wait for the other.
        self._pinning = threading.Lock()

    @property
    def first_position(self) -> int:
        """The oldest position that is still there."""
        return self._journal.first_position

    def walk(self, after: int) -> JournalWalk[At]:
        """All that is durable past a position; `NotFoundError` at the first step if it is no longer there."""
        return JournalWalk(self._events(after))

    def history(self, job_id: str) -> JournalWalk[list[Entry]]:
        """All that is durable about a job; each step looks into some of the frames that may name it."""
        return JournalWalk(self._about(job_id))

    def _events(self, after: int) -> Generator[At, None, None]:
        with self._pinned(after + 1):
            yield from time_travel.events_of(self._journal.replay(after), after)

    def _about(self, job_id: str) -> Generator[list[Entry], None, None]:
        with self._pinned(1):
            for frames in self._index.pieces(job_id):
                yield list(time_travel.about(frames, job_id))

    @contextmanager
    def _pinned(self, position: int) -> Iterator[None]:
        with ExitStack() as stack:
            with self._pinning:
                stack.enter_context(pin(self._disk, position))
            yield
