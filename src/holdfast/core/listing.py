"""Jobs in creation order, with a count per state, so that any page of any filter is found quickly.

Log time never goes back, so submit order is already creation order, except that jobs of the same
millisecond are ordered by id. The jobs lie in chunks of about a thousand, and a chunk only ends where the
millisecond changes; a page therefore skips whole chunks by their counts and sorts inside one or two.
A change of state costs two additions. Invariant: `counts[s]` of a chunk is the number of its jobs in state s.
"""

from collections.abc import Collection, Iterator

from holdfast.core.lifecycle import NOWHERE, State
from holdfast.core.model import Job

_CHUNK_JOBS = 1_024
_SLOTS = max(State) + 1


class _Chunk:
    __slots__ = ("counts", "jobs", "newest_ms")

    def __init__(self) -> None:
        self.counts = [0] * _SLOTS
        self.jobs: list[Job] = []
        self.newest_ms = -1

    def matching(self, states: Collection[int]) -> int:
        counts = self.counts
        return sum(counts[state] for state in states)

    def ordered(self, states: Collection[int], *, newest_first: bool) -> list[Job]:
        jobs = [job for job in self.jobs if job.state in states]
        jobs.sort(key=_by_creation)
        if newest_first:  # stable, so that ids still ascend inside a millisecond
            jobs.sort(key=_newest)
        return jobs


def _by_creation(job: Job) -> tuple[int, str]:
    return job.created_ms, job.id


def _newest(job: Job) -> int:
    return -job.created_ms


class Listing:
    """The ordered index over all jobs."""

    __slots__ = ("_chunks", "_open", "counts_of")

    def __init__(self) -> None:
        self._chunks: dict[int, _Chunk] = {}
        self._open = 0
        #: Chunk number to its counts; a caller that moves a job between states updates them.
        self.counts_of: dict[int, list[int]] = {}

    def chunk_for(self, created_ms: int) -> int:
        """The chunk that jobs of this millisecond go to; opens a new one when the last is full."""
        chunk = self._chunks.get(self._open)
        if chunk is None or (len(chunk.jobs) >= _CHUNK_JOBS and created_ms > chunk.newest_ms):
            self._open += 1
            chunk = self._chunks[self._open] = _Chunk()
            self.counts_of[self._open] = chunk.counts
        chunk.newest_ms = created_ms
        return self._open

    def jobs_in(self, chunk: int) -> list[Job]:
        """The jobs of a chunk; a creator appends to it."""
        return self._chunks[chunk].jobs

    def forget(self, job: Job) -> None:
        """Drops a job whose count was already taken off; its slot is reclaimed in bulk."""
        job.state = NOWHERE
        chunk = self._chunks[job.chunk]
        chunk.counts[NOWHERE] += 1
        if chunk.counts[NOWHERE] * 2 > len(chunk.jobs):
            chunk.jobs[:] = [kept for kept in chunk.jobs if kept.state != NOWHERE]
            chunk.counts[NOWHERE] = 0
        if not chunk.jobs and job.chunk != self._open:
            del self._chunks[job.chunk], self.counts_of[job.chunk]

    def count(self, states: Collection[int]) -> int:
        """How many jobs are in any of these states."""
        return sum(chunk.matching(states) for chunk in self._chunks.values())

    def page(self, states: Collection[int], offset: int, size: int, *, newest_first: bool) -> tuple[list[Job], bool]:
        """Up to `size` jobs after `offset` matching ones, and whether more follow."""
        found: list[Job] = []
        for chunk in self._walk(newest_first=newest_first):
            matching = chunk.matching(states)
            if offset >= matching:
                offset -= matching
                continue
            found += chunk.ordered(states, newest_first=newest_first)[offset:]
            offset = 0
            if len(found) > size:
                return found[:size], True
        return found, False

    def _walk(self, *, newest_first: bool) -> Iterator[_Chunk]:
        chunks = self._chunks.values()
        return reversed(chunks) if newest_first else iter(chunks)
