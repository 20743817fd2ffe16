"""Jobs in creation order, with a count per state, so that any page of any filter is found quickly.

Log time never decreases, so submit order is creation order, except that jobs of the same millisecond are ordered by id.
The jobs are stored in chunks of about a thousand, and a chunk ends only where the millisecond changes. A page skips
whole chunks by their counts and sorts only inside one or two. A state change costs two additions. Invariant:
`counts[s]` of a chunk is the number of its jobs in state s.

A scan continues from the place of a job and not from an offset, so no job is returned twice or skipped because other
jobs were added, changed or removed in the meantime.
"""

from collections.abc import Callable, Collection, Iterator

import msgspec

from holdfast.core.lifecycle import NOWHERE, State
from holdfast.core.model import JobRecord

_CHUNK_JOBS = 1_024
_SLOTS = max(State) + 1
#: Cost of filtering a chunk by state, as a number of examined jobs.
_CHUNK_COST = 32

#: The place of a job in the listing: its creation time and its id.
Place = tuple[int, str]


class Scan(msgspec.Struct, frozen=True):
    """A search: jobs in these states, created in this period (0 means unbounded), that `wants` accepts."""

    states: Collection[int]
    wants: Callable[[JobRecord], bool]
    newest_first: bool
    created_from_ms: int = 0
    created_before_ms: int = 0

    def rank(self, created_ms: int, job_id: str) -> Place:
        """The sort key of a job in the order of this scan."""
        return (-created_ms if self.newest_first else created_ms), job_id

    def covers(self, job: JobRecord) -> bool:
        """Whether the job was created in the searched period."""
        is_early = self.created_before_ms == 0 or job.created_ms < self.created_before_ms
        return is_early and job.created_ms >= self.created_from_ms


class ListingChunk:
    """About a thousand jobs that were created one after the other, with a count per state."""

    __slots__ = ("counts", "jobs", "newest_ms")

    def __init__(self) -> None:
        self.counts = [0] * _SLOTS
        self.jobs: list[JobRecord] = []
        self.newest_ms = -1

    def count_rest(self, state: int) -> None:
        """Counts every job that is in no other state as one in this state."""
        self.counts[state] += len(self.jobs) - sum(self.counts)

    def matching(self, states: Collection[int]) -> int:
        counts = self.counts
        return sum(counts[state] for state in states)

    def ordered(self, states: Collection[int], *, newest_first: bool) -> list[JobRecord]:
        jobs = [job for job in self.jobs if job.state in states]
        jobs.sort(key=_by_creation)
        if newest_first:  # the sort is stable, so ids still ascend within a millisecond
            jobs.sort(key=_newest)
        return jobs

    def may_hold(self, scan: Scan, after: Place | None) -> bool:
        """Whether the chunk can contain a job of this scan after this place."""
        if not self.matching(scan.states) or self.newest_ms < scan.created_from_ms:
            return False
        oldest_ms = self.jobs[0].created_ms
        if scan.created_before_ms and oldest_ms >= scan.created_before_ms:
            return False
        if after is None:
            return True
        return oldest_ms <= after[0] if scan.newest_first else self.newest_ms >= after[0]

    def past(self, scan: Scan, after: Place | None) -> list[JobRecord]:
        """The jobs of the chunk after this place, in the searched states and period, in order."""
        jobs = [job for job in self.ordered(scan.states, newest_first=scan.newest_first) if scan.covers(job)]
        if after is None:
            return jobs
        rank = scan.rank(*after)
        return [job for job in jobs if scan.rank(job.created_ms, job.id) > rank]


def _by_creation(job: JobRecord) -> tuple[int, str]:
    return job.created_ms, job.id


def _newest(job: JobRecord) -> int:
    return -job.created_ms


class Listing:
    """The ordered index over all jobs."""

    __slots__ = ("_chunks", "_open", "counts_of")

    def __init__(self) -> None:
        self._chunks: dict[int, ListingChunk] = {}
        self._open = 0
        #: Chunk number to its counts; callers that change a job's state update them.
        self.counts_of: dict[int, list[int]] = {}

    def chunk_for(self, created_ms: int) -> int:
        """The chunk for new jobs of this millisecond; opens a new one when the last is full."""
        chunk = self._chunks.get(self._open)
        if chunk is None or (len(chunk.jobs) >= _CHUNK_JOBS and created_ms > chunk.newest_ms):
            self._open += 1
            chunk = self._chunks[self._open] = ListingChunk()
            self.counts_of[self._open] = chunk.counts
        chunk.newest_ms = created_ms
        return self._open

    def open_chunk(self, created_ms: int) -> tuple[int, ListingChunk]:
        """The chunk for jobs of this millisecond and its number; the caller appends the jobs and counts them."""
        number = self.chunk_for(created_ms)
        return number, self._chunks[number]

    def jobs_in(self, chunk: int) -> list[JobRecord]:
        """The jobs of a chunk; callers that create jobs append to this list."""
        return self._chunks[chunk].jobs

    def forget(self, job: JobRecord) -> None:
        """Drops a job that is already subtracted from the counts; freed slots are reclaimed in bulk."""
        job.state = NOWHERE
        chunk = self._chunks[job.chunk]
        chunk.counts[NOWHERE] += 1
        if chunk.counts[NOWHERE] * 2 > len(chunk.jobs):
            chunk.jobs[:] = [kept for kept in chunk.jobs if kept.state != NOWHERE]
            chunk.counts[NOWHERE] = 0
        if not chunk.jobs and job.chunk != self._open:
            del self._chunks[job.chunk], self.counts_of[job.chunk]

    def count(self, states: Collection[int]) -> int:
        """The number of jobs in any of these states."""
        return sum(chunk.matching(states) for chunk in self._chunks.values())

    def page(
        self, states: Collection[int], offset: int, size: int, *, newest_first: bool
    ) -> tuple[list[JobRecord], bool]:
        """Up to `size` jobs after the first `offset` matching ones, and whether more follow."""
        found: list[JobRecord] = []
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

    def scan(self, scan: Scan, after: Place | None, size: int, budget: int) -> tuple[list[JobRecord], Place | None]:
        """Up to `size` wanted jobs after a place, and the place to continue from; None at the end.

        At most `budget` jobs are examined (but at least one), so a call may return few or no jobs although more follow.
        """
        found: list[JobRecord] = []
        place = after
        for chunk in self._walk(newest_first=scan.newest_first):
            if not chunk.may_hold(scan, after):
                continue
            for job in chunk.past(scan, after):
                place = (job.created_ms, job.id)
                budget -= 1
                if scan.wants(job):
                    found.append(job)
                if len(found) == size or budget <= 0:
                    return found, place
            budget -= _CHUNK_COST
            if budget <= 0 and place != after:
                return found, place
        return found, None

    def _walk(self, *, newest_first: bool) -> Iterator[ListingChunk]:
        chunks = self._chunks.values()
        return reversed(chunks) if newest_first else iter(chunks)
