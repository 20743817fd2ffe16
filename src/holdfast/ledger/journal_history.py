"""The past events of a journal in a directory: read from its segments, and found by its index of jobs."""

import threading
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager

from holdfast.core.history import Entry
from holdfast.journal.disk import Disk
from holdfast.journal.file import FileJournal
from holdfast.journal.pins import pin
from holdfast.ledger import time_travel
from holdfast.ledger.job_index import JobIndex
from holdfast.ledger.past_events import At, JournalWalk


class JournalHistory:
    """The `PastEvents` of a journal in a directory, while its coordinator writes it."""

    def __init__(self, journal: FileJournal, disk: Disk, index: JobIndex) -> None:
        self._journal = journal
        self._disk = disk
        self._index = index
        # Two threads that name a pin at the same time would choose the same name, and one would wait for the other.
        self._pinning = threading.Lock()

    @property
    def first_position(self) -> int:
        """The oldest position in the journal."""
        return self._journal.first_position

    def walk(self, after: int) -> JournalWalk[At]:
        """Reads the durable events past a position; `NotFoundError` at the first step if they were removed."""
        return JournalWalk(self._events(after))

    def history(self, job_id: str) -> JournalWalk[list[Entry]]:
        """Reads the durable history of a job; each step reads some of the frames that may name the job."""
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
