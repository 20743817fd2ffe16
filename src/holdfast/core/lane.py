"""A lane: the ready jobs of one queue, route and priority, in submit order.

`Job.place` says which of a job's entries is the live one; the others are marked. Marked entries are never at the front
of a lane that was tidied.
"""

import heapq
from collections import deque
from collections.abc import Iterator

from holdfast.core.model import Job

NOT_WAITING, FRESH, RETURNED, DELAYED = range(4)

#: Queue, route and priority.
LaneKey = tuple[str, str, int]


class Lane:
    """The ready jobs of one queue, route and priority, in submit order."""

    __slots__ = ("fresh", "key", "ready", "returned")

    def __init__(self, key: LaneKey) -> None:
        self.key = key
        self.fresh: deque[Job] = deque()
        self.returned: list[tuple[int, int, Job]] = []
        #: Live entries; the rest of `fresh` and `returned` is marked.
        self.ready = 0

    @property
    def head(self) -> Job:
        """The oldest ready job; there is one. Marked entries are not at the front, see `tidy`."""
        fresh, returned = self.fresh, self.returned
        if not returned or (fresh and fresh[0].number < returned[0][0]):
            return fresh[0]
        return returned[0][2]

    def in_order(self) -> Iterator[Job]:
        """The ready jobs, oldest first, without taking any."""
        fresh = (job for job in self.fresh if job.place == FRESH)
        if not self.returned:
            return fresh
        return heapq.merge(fresh, self._returned_in_order(), key=_number)

    def _returned_in_order(self) -> Iterator[Job]:
        """A walk down the heap that costs what is read of it, not what it holds."""
        heap, last = self.returned, 0
        frontier = [(heap[0], 0)]
        while frontier:
            (number, _, job), index = heapq.heappop(frontier)
            for child in (2 * index + 1, 2 * index + 2):
                if child < len(heap):
                    heapq.heappush(frontier, (heap[child], child))
            # A job that came back twice may have two entries, one behind the other.
            if job.place == RETURNED and number != last:
                last = number
                yield job

    def tidy(self) -> None:
        """Drops marked entries at the front, and all of them once they outnumber the live ones."""
        fresh, returned = self.fresh, self.returned
        while fresh and fresh[0].place != FRESH:
            fresh.popleft()
        while returned and returned[0][2].place != RETURNED:
            heapq.heappop(returned)
        if len(fresh) + len(returned) > 2 * self.ready + 64:
            self.fresh = deque(job for job in fresh if job.place == FRESH)
            self.returned = [entry for entry in returned if entry[2].place == RETURNED]
            heapq.heapify(self.returned)


def _number(job: Job) -> int:
    return job.number
