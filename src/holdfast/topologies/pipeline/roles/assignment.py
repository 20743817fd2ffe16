"""The assignment of queue processes to workers.

Invariants, for each kind of worker separately:
- Every queue process has at least one worker, if there is any worker.
- The numbers of queue processes of any two workers differ by at most one, and so do the numbers of workers of any two
  queue processes.
- A worker has at least `breadth` queue processes, or all, so that a busy queue process has several workers.
- Few assignments change: when one worker comes or goes, the others lose no more queue processes than that one has; when
  none does, nothing changes. The result depends only on the arguments.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence

from holdfast import limits
from holdfast.core.owner import owner_index

Assigned = dict[str, tuple[str, ...]]


def assign(
    workers: Mapping[str, Hashable], queues: Sequence[str], before: Mapping[str, Collection[str]], breadth: int
) -> Assigned:
    """Returns the queue processes of each worker, in their order; `workers` maps each worker to its kind."""
    by_kind: dict[Hashable, list[str]] = {}
    for worker in sorted(workers):
        by_kind.setdefault(workers[worker], []).append(worker)
    assigned: Assigned = {}
    for alike in by_kind.values():
        held = _KindAssignment(alike, queues, before, breadth).settled()
        for worker in alike:
            assigned[worker] = tuple(queue for queue in queues if queue in held[worker])
    return assigned


class _KindAssignment:
    """Shares the queue processes among the workers of one kind."""

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
        """Returns the number of queue processes of each worker; a remainder goes to those that have most already."""
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
        """Workers below their quota take the queue processes with the fewest workers.

        A quota is at most the number of queue processes, so there is always one left to take.
        """
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
        """Moves workers from the queue process with most workers to the one with fewest; first those new to it."""
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
    """Returns the index of the queue process for a job that is claimed for the `deliveries`th time."""
    return owner_index(f"{route}:{deliveries - 1}", queues)
