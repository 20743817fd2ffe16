"""Jobs in creation order, with a count per state, so that any page of any filter is found quickly.

Log time never goes back, so submit order is already creation order, except that jobs of the same
millisecond are ordered by id. The jobs lie in chunks of about a thousand, and a chunk only ends where the
millisecond changes; a page therefore skips whole chunks by their counts and sorts inside one or two.
A change of state costs two additions. Invariant: `counts[s]` of a chunk is the number of its jobs in state s.

A scan goes on from the place of a job rather than from an offset, so nothing is seen twice or missed because other
jobs came, moved or went meanwhile.
"""

from collections.abc import Callable, Collection, Iterable, Iterator

import msgspec

from holdfast.core.lifecycle import NOWHERE, State
from holdfast.core.model import Job

_CHUNK_JOBS = 1_024
_SLOTS = max(State) + 1
#: What finding the jobs of some states in a chunk costs, in jobs looked at.
_CHUNK_COST = 32

#: The place of a job in the listing: when it was created, and its id.
Place = tuple[int, str]


class Scan(msgspec.Struct, frozen=True):
    """What a scan looks for: jobs in these states, created in this time (0 means without end), that are wanted."""

    states: Collection[int]
    wants: Callable[[Job], bool]
    newest_first: bool
    created_from_ms: int = 0
    created_before_ms: int = 0

    def rank(self, created_ms: int, job_id: str) -> Place:
        """Where a job comes in the order of this scan."""
        return (-created_ms if self.newest_first else created_ms), job_id

    def covers(self, job: Job) -> bool:
        """Whether the job was created in the time that is looked at."""
        is_early = self.created_before_ms == 0 or job.created_ms < self.created_before_ms
        return is_early and job.created_ms >= self.created_from_ms


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

    def may_hold(self, scan: Scan, after: Place | None) -> bool:
        """Whether something that is looked for can be in here, past this place."""
        if not self.matching(scan.states) or self.newest_ms < scan.created_from_ms:
            return False
        oldest_ms = self.jobs[0].created_ms
        if scan.created_before_ms and oldest_ms >= scan.created_before_ms:
            return False
        if after is None:
            return True
        return oldest_ms <= after[0] if scan.newest_first else self.newest_ms >= after[0]

    def past(self, scan: Scan, after: Place | None) -> list[Job]:
        """The jobs in here past this place, in the states and the time that are looked at, in order."""
        jobs = [job for job in self.ordered(scan.states, newest_first=scan.newest_first) if scan.covers(job)]
        if after is None:
            return jobs
        rank = scan.rank(*after)
        return [job for job in jobs if scan.rank(job.created_ms, job.id) > rank]


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

    def extend(self, jobs: Iterable[Job]) -> None:
        """Puts jobs at the end, in the order of their creation, and counts their states."""
        created_ms: int | None = None
        for job in jobs:
            if job.created_ms != created_ms:
                created_ms = job.created_ms
                number = self.chunk_for(created_ms)
                listed, counts = self._chunks[number].jobs, self.counts_of[number]
            job.chunk = number
            listed.append(job)
            counts[job.state] += 1

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

    def scan(self, scan: Scan, after: Place | None, size: int, budget: int) -> tuple[list[Job], Place | None]:
        """Up to `size` wanted jobs past a place, and the place to go on from; None if the end was reached.

        No more than `budget` jobs are looked at (but at least one), so there may be fewer, or none, and more to come.
        """
        found: list[Job] = []
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

    def _walk(self, *, newest_first: bool) -> Iterator[_Chunk]:
        chunks = self._chunks.values()
        return reversed(chunks) if newest_first else iter(chunks)
