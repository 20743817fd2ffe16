"""Who is next: jobs that wait to be granted.

Order inside a lane (one queue, one route, one priority) is submit order, always: a job that comes back takes
its old place. Between lanes of a worker's choice the earlier *virtual arrival* wins: a priority counts as an
earlier arrival, `aging_ms` per level, so that an urgent job overtakes but a patient one is not starved; with
`aging_ms` 0 priority is strict.

An entry is never searched for. Taking a job marks it, and marked entries are dropped when they come to the
front or outnumber the live ones. `Job.place` says which of its entries is the live one. Which jobs are due is
a function of time alone, so moving due jobs from the waiting heap into lanes changes nothing observable.
"""

import heapq
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence

from holdfast.core.model import Job

NOT_WAITING, FRESH, RETURNED, DELAYED = range(4)

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


class ReadyQueue:
    """All lanes, and the heap of jobs that are not due yet."""

    __slots__ = ("_delayed", "_ticket", "delayed", "delayed_in", "lanes")

    def __init__(self) -> None:
        self.lanes: dict[LaneKey, Lane] = {}
        self._delayed: list[tuple[int, int, Job]] = []
        self._ticket = 0
        #: Live entries of the heap of delayed jobs.
        self.delayed = 0
        #: The same by queue; a queue without any is not in it.
        self.delayed_in: dict[str, int] = {}

    def lane(self, queue: str, route: str, priority: int) -> Lane:
        """The lane, made if it is not there."""
        key = (queue, route, priority)
        lane = self.lanes.get(key)
        if lane is None:
            lane = self.lanes[key] = Lane(key)
        return lane

    def lane_of(self, job: Job) -> Lane:
        """The lane that a job belongs to."""
        template = job.template
        return self.lane(template.queue, template.route, template.priority)

    def put_back(self, job: Job, now_ms: int) -> None:
        """A job that ran before waits again: in its old place, or until it is due."""
        if job.not_before_ms > now_ms:
            self.put_delayed(job)
            return
        lane = self.lane_of(job)
        self._ticket += 1
        heapq.heappush(lane.returned, (job.number, self._ticket, job))
        job.place = RETURNED
        lane.ready += 1

    def put_delayed(self, job: Job) -> None:
        """A job waits until its `not_before_ms`."""
        self._ticket += 1
        heapq.heappush(self._delayed, (job.not_before_ms, self._ticket, job))
        job.place = DELAYED
        self._count_delayed(job, 1)

    def _count_delayed(self, job: Job, change: int) -> None:
        self.delayed += change
        queue = job.template.queue
        count = self.delayed_in[queue] = self.delayed_in.get(queue, 0) + change
        if not count:
            del self.delayed_in[queue]

    def take(self, job: Job) -> None:
        """A job no longer waits: granted or canceled."""
        place, job.place = job.place, NOT_WAITING
        if place in (FRESH, RETURNED):
            lane = self.lane_of(job)
            lane.ready -= 1
            if lane.ready:
                lane.tidy()
            else:
                del self.lanes[lane.key]
        elif place == DELAYED:
            self._count_delayed(job, -1)
            self._tidy_delayed()

    def take_all(self, jobs: Sequence[Job]) -> None:
        """The same for many at once; neighbours are mostly of one lane, which is looked up and tidied once."""
        lanes: dict[LaneKey, Lane] = {}
        template, lane = None, None
        for job in jobs:
            if job.place == DELAYED:
                self.take(job)
                continue
            if job.template is not template or lane is None:
                template = job.template
                lane = self.lane_of(job)
                lanes[lane.key] = lane
            job.place = NOT_WAITING
            lane.ready -= 1
        for key, lane in lanes.items():
            if lane.ready:
                lane.tidy()
            else:
                del self.lanes[key]

    def drop_empty(self, lanes: Collection[Lane]) -> None:
        """Forgets lanes that were made for jobs that went elsewhere."""
        for lane in lanes:
            if not lane.ready:
                self.lanes.pop(lane.key, None)

    def _tidy_delayed(self) -> None:
        if len(self._delayed) > 2 * self.delayed + 64:
            self._delayed = [entry for entry in self._delayed if _is_live(entry)]
            heapq.heapify(self._delayed)

    def promote(self, now_ms: int) -> None:
        """Moves what is due into its lane. Idempotent for a time; time never goes back."""
        delayed = self._delayed
        while delayed and delayed[0][0] <= now_ms:
            entry = heapq.heappop(delayed)
            if _is_live(entry):
                self._count_delayed(entry[2], -1)
                self.put_back(entry[2], now_ms)

    def not_due(self) -> list[Job]:
        """The jobs that wait for their time, in no order."""
        return [entry[2] for entry in self._delayed if _is_live(entry)]

    def next_due_ms(self) -> int | None:
        """When the next delayed job is due; may name a job that no longer waits."""
        return self._delayed[0][0] if self._delayed else None

    def choose(self, wants: Callable[[LaneKey], bool], count: int, aging_ms: int) -> list[Job]:
        """The next `count` jobs out of the lanes that are wanted, without taking them."""
        lanes = [lane for key, lane in self.lanes.items() if wants(key)]
        if len(lanes) == 1:
            return [job for job, _ in zip(lanes[0].in_order(), range(count), strict=False)]
        return self._merged(lanes, count, aging_ms)

    def _merged(self, lanes: Collection[Lane], count: int, aging_ms: int) -> list[Job]:
        heads: list[tuple[int, int, Job, Iterator[Job]]] = []
        for lane in lanes:
            _push_head(heads, lane.in_order(), aging_ms)
        chosen: list[Job] = []
        while heads and len(chosen) < count:
            _, _, job, rest = heapq.heappop(heads)
            chosen.append(job)
            _push_head(heads, rest, aging_ms)
        return chosen

    def audit(self, queued: int) -> None:
        """Checks the counters against the entries, and against the number of jobs that wait in all."""
        for lane in self.lanes.values():
            assert lane.ready == sum(1 for _ in lane.in_order()) > 0, lane.key
        not_due = self.not_due()
        assert self.delayed == len(not_due)
        assert self.delayed_in == Counter(job.template.queue for job in not_due)
        assert queued == self.delayed + sum(lane.ready for lane in self.lanes.values())


def _is_live(entry: tuple[int, int, Job]) -> bool:
    due_ms, _, job = entry
    return job.place == DELAYED and job.not_before_ms == due_ms


def _push_head(heads: list[tuple[int, int, Job, Iterator[Job]]], jobs: Iterator[Job], aging_ms: int) -> None:
    job = next(jobs, None)
    if job is not None:
        heapq.heappush(heads, (virtual_arrival(job, aging_ms), job.number, job, jobs))


def virtual_arrival(job: Job, aging_ms: int) -> int:
    """When the job would have come, had its priority been waiting time; waiting to be due is no waiting."""
    priority = job.template.priority
    return max(job.created_ms, job.not_before_ms) - priority * aging_ms if aging_ms else -priority
