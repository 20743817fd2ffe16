"""The past events of a shard in the database, read frame by frame.

There is no index of jobs: the history of a job reads all frames that are kept, and decodes those that name it.
"""

from collections.abc import Generator

from holdfast.core.history import Entry
from holdfast.ledger import time_travel
from holdfast.ledger.past_events import At, JournalWalk
from holdfast.topologies.cluster.journal import ClusterJournal


class ClusterHistory:
    """The `PastEvents` of a shard, while its leader writes it. Each walk has a connection of its own."""

    def __init__(self, journal: ClusterJournal) -> None:
        self._journal = journal

    @property
    def first_position(self) -> int:
        """The oldest position that is kept."""
        return self._journal.first_position

    def walk(self, after: int) -> JournalWalk[At]:
        """Reads the durable events past a position; `NotFoundError` at the first step if they were removed."""
        return JournalWalk(self._events(after))

    def history(self, job_id: str) -> JournalWalk[list[Entry]]:
        """Reads the durable history of a job; each step reads one frame."""
        return JournalWalk(self._about(job_id))

    def _events(self, after: int) -> Generator[At, None, None]:
        yield from time_travel.events_of(self._journal.replay(after), after)

    def _about(self, job_id: str) -> Generator[list[Entry], None, None]:
        for frame in self._journal.replay(self._journal.first_position - 1):
            yield list(time_travel.about([frame], job_id))
