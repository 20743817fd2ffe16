"""Which worker takes from which queue process.

Invariants, for each kind of worker by itself:
- Every queue process has at least one worker, as long as there is one at all.
- Any two workers differ by at most one queue process, and any two queue processes by at most one worker.
- A worker has at least `breadth` queue processes, or all: one that is busy has several workers then.
- Little moves: when one worker comes or goes, the others lose no more queue processes than that one has; when nobody
  does, nothing moves. The same question has the same answer everywhere.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence

from holdfast import limits
from holdfast.core.owner import owner_index

Assigned = dict[str, tuple[str, ...]]


def assign(
    workers: Mapping[str, Hashable], queues: Sequence[str], before: Mapping[str, Collection[str]], breadth: int
) -> Assigned:
    """The queue processes of each worker, in their order; `workers` says of which kind each one is."""
    by_kind: dict[Hashable, list[str]] = {}
    for worker in sorted(workers):
        by_kind.setdefault(workers[worker], []).append(worker)
    assigned: Assigned = {}
    for alike in by_kind.values():
        held = _Sharing(alike, queues, before, breadth).settled()
        for worker in alike:
            assigned[worker] = tuple(queue for queue in queues if queue in held[worker])
    return assigned


class _Sharing:
    """Workers of one kind, and how they share the queue processes."""

    def __init__(
        self, workers: list[str], queues: Sequence[str], before: Mapping[str, Collection[str]], breadth: int
    ) -> None:
        self._workers = workers
        self._place = {queue: index for index, queue in enumerate(queues)}
        self._before = before
        self._held = {worker: {queue for queue in before.get(worker, ()) if queue in self._place} for worker in workers}
        self._served = Counter(dict.fromkeys(queues, 0))
        for held in self._held.values():
            self._served.update(held)
        self._quota = self._quotas(max(len(queues), len(workers) * min(breadth, len(queues))))

    def _quotas(self, places: int) -> dict[str, int]:
        """How many each should have; who has most already keeps one more, where not all can have the same."""
        each, more = divmod(places, len(self._workers))
        ordered = sorted(self._workers, key=lambda worker: (-len(self._held[worker]), worker))
        return {worker: each + (index < more) for index, worker in enumerate(ordered)}

    def settled(self) -> dict[str, set[str]]:
        if self._place:
            self._trim()
            self._fill()
            self._level()
        return self._held

    def _trim(self) -> None:
        for worker in self._workers:
            while len(self._held[worker]) > self._quota[worker]:
                self._drop(worker, max(self._held[worker], key=self._by_service))

    def _fill(self) -> None:
        """Whoever has room takes what is served least; nobody's room exceeds what it does not hold."""
        room = {worker: self._quota[worker] - len(self._held[worker]) for worker in self._workers}
        while any(room.values()):
            for queue in sorted(self._served, key=self._by_service):
                takers = [worker for worker in self._workers if room[worker] and queue not in self._held[worker]]
                if takers:
                    taker = max(takers, key=lambda worker: room[worker])
                    self._take(taker, queue)
                    room[taker] -= 1
                    break

    def _level(self) -> None:
        """One who serves the most served and not the least served changes over; first whoever has just come to it."""
        while True:
            least = min(self._served, key=self._by_service)
            most = max(self._served, key=self._by_service)
            if self._served[most] - self._served[least] <= 1:
                return
            movers = [
                worker for worker in self._workers if most in self._held[worker] and least not in self._held[worker]
            ]
            mover = min(movers, key=lambda worker: (most in self._before.get(worker, ()), worker))
            self._drop(mover, most)
            self._take(mover, least)

    def _by_service(self, queue: str) -> tuple[int, int]:
        return self._served[queue], self._place[queue]

    def _take(self, worker: str, queue: str) -> None:
        self._held[worker].add(queue)
        self._served[queue] += 1

    def _drop(self, worker: str, queue: str) -> None:
        self._held[worker].remove(queue)
        self._served[queue] -= 1


def is_high(priority: int) -> bool:
    """Whether a job of this priority goes to the queue processes of the high kind."""
    return priority > limits.PRIORITY_DEFAULT


def queue_index(route: str, deliveries: int, queues: int) -> int:
    """Which of so many queue processes a job goes to when it is claimed for the `deliveries`th time."""
    return owner_index(f"{route}:{deliveries - 1}", queues)
