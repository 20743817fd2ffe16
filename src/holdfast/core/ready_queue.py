"""The queue of jobs that wait to be granted.

Order inside a lane (one queue, one route, one priority) is always submit order: a job that returns takes its old place.
Between the lanes that a worker accepts, the earlier *virtual arrival* wins: each priority level counts as an arrival
that is `aging_ms` earlier. So an urgent job overtakes others, but a job of low priority is not starved. With `aging_ms`
0 priority is strict. `lane_order` finds the next lane. The first query builds it, so that replay does not pay for it;
later queries update it with the lanes that have changed.

Entries are never searched for. Taking a job makes its entry stale; stale entries are dropped when they reach the front
or outnumber the live ones (see `lane`). Whether a job is due depends on time alone, so moving due jobs from the heap of
delayed jobs into lanes changes nothing observable.
"""

import heapq
from collections import Counter
from collections.abc import Collection, Sequence

from holdfast.core.lane import DELAYED, FRESH, NOT_WAITING, RETURNED, Lane, LaneKey
from holdfast.core.lane_order import LaneOrder, RouteFilter
from holdfast.core.model import JobRecord


class ReadyQueue:
    """All lanes, and the heap of jobs that are not due yet."""

    __slots__ = ("_changed", "_delayed", "_order", "_paused", "_ticket", "delayed", "delayed_in", "lanes")

    def __init__(self) -> None:
        self.lanes: dict[LaneKey, Lane] = {}
        self._order: LaneOrder | None = None
        #: Lanes that changed since the order was last refreshed; None until the order exists.
        self._changed: dict[LaneKey, None] | None = None
        self._paused: set[str] = set()
        self._delayed: list[tuple[int, int, JobRecord]] = []
        self._ticket = 0
        #: Number of live entries in the heap of delayed jobs.
        self.delayed = 0
        #: The same by queue; only queues that have some.
        self.delayed_in: dict[str, int] = {}

    def lane(self, queue: str, route: str, priority: int) -> Lane:
        """The lane; creates it if it does not exist."""
        key = (queue, route, priority)
        lane = self.lanes.get(key)
        if lane is None:
            lane = self.lanes[key] = Lane(key)
        return lane

    def lane_of(self, job: JobRecord) -> Lane:
        """The lane that a job belongs to."""
        template = job.template
        return self.lane(template.queue, template.route, template.priority)

    def put_back(self, job: JobRecord, now_ms: int) -> None:
        """Puts back a job that ran before: into its old place, or among the delayed jobs until it is due."""
        if job.not_before_ms > now_ms:
            self.put_delayed(job)
            return
        lane = self.lane_of(job)
        self._ticket += 1
        heapq.heappush(lane.returned, (job.number, self._ticket, job))
        job.place = RETURNED
        lane.ready += 1
        if self._changed is not None:
            self._changed[lane.key] = None

    def put_delayed(self, job: JobRecord) -> None:
        """Adds a job that waits until its `not_before_ms`."""
        self._ticket += 1
        heapq.heappush(self._delayed, (job.not_before_ms, self._ticket, job))
        job.place = DELAYED
        self._count_delayed(job, 1)

    def _count_delayed(self, job: JobRecord, change: int) -> None:
        self.delayed += change
        queue = job.template.queue
        count = self.delayed_in[queue] = self.delayed_in.get(queue, 0) + change
        if not count:
            del self.delayed_in[queue]

    def take(self, job: JobRecord) -> None:
        """Removes a job that was granted or canceled."""
        place, job.place = job.place, NOT_WAITING
        if place in (FRESH, RETURNED):
            lane = self.lane_of(job)
            lane.ready -= 1
            self._taken_from(lane)
        elif place == DELAYED:
            self._count_delayed(job, -1)
            self._tidy_delayed()

    def take_all(self, jobs: Sequence[JobRecord]) -> None:
        """Removes many jobs; consecutive jobs mostly share a lane, which is looked up and tidied once."""
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
        for lane in lanes.values():
            self._taken_from(lane)

    def _taken_from(self, lane: Lane) -> None:
        if lane.ready:
            lane.tidy()
        else:
            del self.lanes[lane.key]
        if self._changed is not None:
            self._changed[lane.key] = None

    def filled(self, lanes: Collection[Lane]) -> None:
        """Notes that new jobs were added to these lanes; drops lanes that stayed empty."""
        for lane in lanes:
            if not lane.ready:
                self.lanes.pop(lane.key, None)
            elif self._changed is not None:
                self._changed[lane.key] = None

    def set_paused(self, queue: str, *, is_paused: bool) -> None:
        """Pauses or resumes a queue; jobs of a paused queue are not granted."""
        if is_paused:
            self._paused.add(queue)
        else:
            self._paused.discard(queue)
        if self._order is not None and self._changed is not None:
            self._changed.update(dict.fromkeys(self._order.lanes_of(queue)))

    def _tidy_delayed(self) -> None:
        if len(self._delayed) > 2 * self.delayed + 64:
            self._delayed = [entry for entry in self._delayed if _is_live(entry)]
            heapq.heapify(self._delayed)

    def promote(self, now_ms: int, jobs_max: int | None = None) -> bool:
        """Moves due jobs into their lanes, at most `jobs_max`; returns whether all of them were moved.

        Idempotent for the same time; time never decreases.
        """
        delayed = self._delayed
        while delayed and delayed[0][0] <= now_ms:
            if jobs_max is not None:
                if not jobs_max:
                    return False
                jobs_max -= 1
            entry = heapq.heappop(delayed)
            if _is_live(entry):
                self._count_delayed(entry[2], -1)
                self.put_back(entry[2], now_ms)
        return True

    def not_due(self) -> list[JobRecord]:
        """The delayed jobs, unordered."""
        return [entry[2] for entry in self._delayed if _is_live(entry)]

    def next_due_ms(self) -> int | None:
        """The time when the next delayed job is due; may be that of a job that no longer waits."""
        return self._delayed[0][0] if self._delayed else None

    def choose(
        self, route_filter: RouteFilter | None, count: int, aging_ms: int, now_ms: int, *, is_free: bool = False
    ) -> list[JobRecord]:
        """The next `count` wanted jobs (of all lanes if `wanted` is None), without taking them.

        `is_free` says that the worker holds no lease; see `LaneOrder.choose`.
        """
        return self.order(aging_ms, now_ms).choose(route_filter, count, now_ms, is_free=is_free)

    def order(self, aging_ms: int, now_ms: int) -> LaneOrder:
        """The order of lanes at this time, with all changes applied."""
        if self._delayed and self._delayed[0][0] <= now_ms:
            self.promote(now_ms)
        order, changed = self._order, self._changed
        if order is None or changed is None or order.aging_ms != aging_ms:
            order = self._order = LaneOrder(self.lanes, self._paused, aging_ms)
            changed = self._changed = dict.fromkeys(self.lanes)
        if changed or (order.releases and order.releases[0][0] <= now_ms):
            order.refresh(changed, now_ms)
            changed.clear()
        return order

    def audit(self, queued: int) -> None:
        """Checks the counters against the entries, and against the total number of queued jobs."""
        for lane in self.lanes.values():
            assert lane.ready == sum(1 for _ in lane.in_order()) > 0, lane.key
            assert lane.head is next(lane.in_order()), lane.key
        not_due = self.not_due()
        assert self.delayed == len(not_due)
        assert self.delayed_in == Counter(job.template.queue for job in not_due)
        assert queued == self.delayed + sum(lane.ready for lane in self.lanes.values())
        if self._order is not None:
            self.order(self._order.aging_ms, self._order.now_ms).audit()


def _is_live(entry: tuple[int, int, JobRecord]) -> bool:
    due_ms, _, job = entry
    return job.place == DELAYED and job.not_before_ms == due_ms
