"""A lane: the ready jobs of one queue, route and priority, in submit order.

A job may have several entries; `JobRecord.place` says which one is live, and the others are stale. After `tidy`, no
stale entry is at the front of a lane.
"""

import heapq
from collections import deque
from collections.abc import Iterator

from holdfast.core.model import JobRecord

#: `FRESH` is 0, the default of `JobRecord.place`: loading a queued job need not set it.
FRESH, NOT_WAITING, RETURNED, DELAYED = range(4)

#: Queue, route and priority.
LaneKey = tuple[str, str, int]


class Lane:
    """The ready jobs of one queue, route and priority, in submit order."""

    __slots__ = ("fresh", "key", "ready", "returned")

    def __init__(self, key: LaneKey) -> None:
        self.key = key
        self.fresh: deque[JobRecord] = deque()
        self.returned: list[tuple[int, int, JobRecord]] = []
        #: Number of live entries; the other entries of `fresh` and `returned` are stale.
        self.ready = 0

    @property
    def head(self) -> JobRecord:
        """The oldest ready job; the lane must have one. `tidy` keeps stale entries away from the front."""
        fresh, returned = self.fresh, self.returned
        if not returned or (fresh and fresh[0].number < returned[0][0]):
            return fresh[0]
        return returned[0][2]

    def in_order(self) -> Iterator[JobRecord]:
        """The ready jobs, oldest first, without taking any."""
        fresh = (job for job in self.fresh if job.place == FRESH)
        if not self.returned:
            return fresh
        return heapq.merge(fresh, self._returned_in_order(), key=_number)

    def _returned_in_order(self) -> Iterator[JobRecord]:
        """Walks down the heap in order; the cost depends on the entries read, not on the heap's size."""
        heap, last = self.returned, 0
        frontier = [(heap[0], 0)]
        while frontier:
            (number, _, job), index = heapq.heappop(frontier)
            for child in (2 * index + 1, 2 * index + 2):
                if child < len(heap):
                    heapq.heappush(frontier, (heap[child], child))
            # A job that returned twice may have two entries, one behind the other.
            if job.place == RETURNED and number != last:
                last = number
                yield job

    def tidy(self) -> None:
        """Drops stale entries at the front, and all stale entries once they outnumber the live ones."""
        fresh, returned = self.fresh, self.returned
        while fresh and fresh[0].place != FRESH:
            fresh.popleft()
        while returned and returned[0][2].place != RETURNED:
            heapq.heappop(returned)
        if len(fresh) + len(returned) > 2 * self.ready + 64:
            self.fresh = deque(job for job in fresh if job.place == FRESH)
            self.returned = [entry for entry in returned if entry[2].place == RETURNED]
            heapq.heapify(self.returned)


def _number(job: JobRecord) -> int:
    return job.number
