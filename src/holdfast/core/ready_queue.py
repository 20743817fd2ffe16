"""Who is next: jobs that wait to be granted.

Order inside a lane (one queue, one route, one priority) is submit order, always: a job that comes back takes
its old place. Between lanes of a worker's choice the earlier *virtual arrival* wins: a priority counts as an
earlier arrival, `aging_ms` per level, so that an urgent job overtakes but a patient one is not starved; with
`aging_ms` 0 priority is strict. `lane_order` finds the next lane; it is built by the first question, so that replay
does not pay for it, and is told which lanes have changed when the next question comes.

An entry is never searched for. Taking a job marks it, and marked entries are dropped when they come to the front or
outnumber the live ones; see `lane`. Which jobs are due is a function of time alone, so moving due jobs from the waiting
heap into lanes changes nothing observable.
"""

import heapq
from collections import Counter
from collections.abc import Collection, Sequence

from holdfast.core.lane import DELAYED, FRESH, NOT_WAITING, RETURNED, Lane, LaneKey
from holdfast.core.lane_order import LaneOrder, Wanted
from holdfast.core.model import Job


class ReadyQueue:
    """All lanes, and the heap of jobs that are not due yet."""

    __slots__ = ("_changed", "_delayed", "_order", "_paused", "_ticket", "delayed", "delayed_in", "lanes")

    def __init__(self) -> None:
        self.lanes: dict[LaneKey, Lane] = {}
        self._order: LaneOrder | None = None
        #: Lanes that the order has not been told of yet, once there is one.
        self._changed: dict[LaneKey, None] | None = None
        self._paused: set[str] = set()
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
        if self._changed is not None:
            self._changed[lane.key] = None

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
            self._taken_from(lane)
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
        """New jobs were put into these lanes; those that all went elsewhere are forgotten."""
        for lane in lanes:
            if not lane.ready:
                self.lanes.pop(lane.key, None)
            elif self._changed is not None:
                self._changed[lane.key] = None

    def set_paused(self, queue: str, *, is_paused: bool) -> None:
        """Jobs of a paused queue wait, whatever is asked for."""
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
        """Moves what is due into its lane, or at most so much of it; whether all of it has been moved.

        Idempotent for a time; time never goes back.
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

    def not_due(self) -> list[Job]:
        """The jobs that wait for their time, in no order."""
        return [entry[2] for entry in self._delayed if _is_live(entry)]

    def next_due_ms(self) -> int | None:
        """When the next delayed job is due; may name a job that no longer waits."""
        return self._delayed[0][0] if self._delayed else None

    def choose(
        self, wanted: Wanted | None, count: int, aging_ms: int, now_ms: int, *, is_free: bool = False
    ) -> list[Job]:
        """The next `count` jobs that are wanted, or of all where nothing is said, without taking them.

        `is_free` says that the worker holds nothing; see `LaneOrder.choose`.
        """
        return self.order(aging_ms, now_ms).choose(wanted, count, now_ms, is_free=is_free)

    def order(self, aging_ms: int, now_ms: int) -> LaneOrder:
        """The order of lanes at this time, with everything that has changed in its place."""
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
        """Checks the counters against the entries, and against the number of jobs that wait in all."""
        for lane in self.lanes.values():
            assert lane.ready == sum(1 for _ in lane.in_order()) > 0, lane.key
            assert lane.head is next(lane.in_order()), lane.key
        not_due = self.not_due()
        assert self.delayed == len(not_due)
        assert self.delayed_in == Counter(job.template.queue for job in not_due)
        assert queued == self.delayed + sum(lane.ready for lane in self.lanes.values())
        if self._order is not None:
            self.order(self._order.aging_ms, self._order.now_ms).audit()


def _is_live(entry: tuple[int, int, Job]) -> bool:
    due_ms, _, job = entry
    return job.place == DELAYED and job.not_before_ms == due_ms
