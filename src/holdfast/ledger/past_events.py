"""The port of the events of a journal that its coordinator still writes, as readers of old events use it.

Invariant: only durable events are returned, in order and without gaps.
"""

import threading
from collections.abc import Generator
from itertools import islice
from typing import Generic, Protocol, TypeVar

from holdfast.core.events import AnyEvent
from holdfast.core.history import Entry
from holdfast.errors import NotFoundError
from holdfast.journal.errors import PositionRemovedError

T = TypeVar("T")
#: An event at its position.
At = tuple[int, AnyEvent]


class JournalWalk(Generic[T]):
    """Reads a journal in parts, each in the thread that calls `take`.

    Its steps may hold files and pins, until they end or the walk is closed. `close` may be called at any time, in any
    thread: a running `take` finishes first.
    """

    def __init__(self, steps: Generator[T, None, None]) -> None:
        self._steps = steps
        self._is_busy = threading.Lock()
        self._is_closed = False

    def take(self, count: int) -> list[T]:
        """Returns the next `count` steps; fewer only at the end of the events that were durable when the walk began."""
        try:
            with self._is_busy:
                return [] if self._is_closed else list(islice(self._steps, count))
        except PositionRemovedError as error:
            raise NotFoundError(error.message, reason=error.reason) from error
        finally:
            if self._is_closed:
                self._end()

    def close(self) -> None:
        """Ends the steps, which release their files and pins."""
        self._is_closed = True
        if self._is_busy.acquire(blocking=False):
            self._is_busy.release()
            self._end()

    def _end(self) -> None:
        with self._is_busy:
            self._steps.close()


class PastEvents(Protocol):
    """The past events of a journal. Its methods do not block; the walks that they return may."""

    @property
    def first_position(self) -> int:
        """The oldest position in the journal."""
        ...

    def walk(self, after: int) -> JournalWalk[At]:
        """Reads the durable events past a position; `NotFoundError` at the first step if they were removed."""
        ...

    def history(self, job_id: str) -> JournalWalk[list[Entry]]:
        """Reads the durable history of a job, empty for an unknown one; a step may have no entries."""
        ...
