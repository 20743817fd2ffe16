"""The state of a coordinator: the workers and their queue processes, without clocks and I/O.

Invariants: a worker has one seat, that of the session with the last request; an earlier session that learns this is
over. Draining workers have no queue processes. Every change that a worker must know of changes the version of its seat,
and wakes its waiting requests.
"""

import asyncio
from collections.abc import Collection, Iterable
from itertools import chain, zip_longest
from zlib import crc32

import msgspec

from holdfast.topologies.pipeline.backend.store import QueueAssignment, WorkerKind
from holdfast.topologies.pipeline.roles.assignment import assign


class QueueList(msgspec.Struct, frozen=True, kw_only=True):
    """The queue processes, `host:port` each, and the minimum number of them for a worker."""

    normal: tuple[str, ...]
    high: tuple[str, ...] = ()
    breadth: int = 4

    def mixed(self) -> list[str]:
        """Returns all queue processes with the kinds alternating, so that most workers get some of each."""
        pairs = zip_longest(self.high, self.normal)
        return list(dict.fromkeys(queue for queue in chain.from_iterable(pairs) if queue is not None))


class WorkerEntry:
    """One worker."""

    def __init__(self, worker: str, session: str, kind: WorkerKind, slots: int) -> None:
        self.worker = worker
        self.session = session
        self.kind = kind
        self.slots = slots
        self.queues: tuple[str, ...] = ()
        #: The number of running jobs in its last heartbeat.
        self.running = 0
        self.heard_s = 0.0
        #: The worker has reported that it drains.
        self.is_draining = False
        #: An operator has requested that it drains.
        self.is_drain_asked = False
        self.changed = asyncio.Event()

    @property
    def version(self) -> int:
        """A checksum of the queue processes and the drain request, equal in every coordinator; never 0."""
        return crc32("\n".join((*self.queues, str(self.is_drain_asked))).encode()) or 1

    def place(self, now_s: float) -> QueueAssignment:
        """Returns the place to save."""
        is_draining = self.is_draining or self.is_drain_asked
        heard_ms_ago = max(0, round((now_s - self.heard_s) * 1_000))
        return QueueAssignment(self.worker, self.session, self.kind, self.slots, self.queues, heard_ms_ago, is_draining)

    def wake(self) -> None:
        """Wakes the requests that wait for a change of this seat."""
        self.changed.set()
        self.changed = asyncio.Event()


class WorkerTable:
    """All workers. Times are those of a monotonic clock, in seconds."""

    def __init__(self, queues: QueueList) -> None:
        self._queues = queues
        self._order = queues.mixed()
        self._entries: dict[str, WorkerEntry] = {}
        #: Workers whose place has changed since it was last saved, and workers that have left.
        self.changed: set[str] = set()
        self.gone: set[str] = set()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, worker: str) -> WorkerEntry | None:
        """Returns the worker's seat, if it has one."""
        return self._entries.get(worker)

    def has(self, worker: str, session: str) -> bool:
        """Whether this session of the worker has the seat."""
        entry = self._entries.get(worker)
        return entry is not None and entry.session == session

    def all(self) -> list[WorkerEntry]:
        """Returns all seats, by worker."""
        return [self._entries[worker] for worker in sorted(self._entries)]

    def sit(self, entry: WorkerEntry) -> WorkerEntry:
        """Adds a worker, or replaces its session; a known worker keeps its queue processes as far as possible."""
        before = self._entries.get(entry.worker)
        if before is not None:
            entry.queues = before.queues
            before.wake()
        self._entries[entry.worker] = entry
        self.gone.discard(entry.worker)
        self.changed.add(entry.worker)
        self.share()
        return entry

    def restore(self, places: Iterable[QueueAssignment], heard_s: float) -> None:
        """Adds the workers of an earlier coordinator, except those that are known or have left."""
        for place in places:
            if place.worker not in self._entries and place.worker not in self.gone:
                entry = self._entries[place.worker] = WorkerEntry(place.worker, place.session, place.kind, place.slots)
                entry.queues, entry.heard_s = place.queues, heard_s
                entry.is_drain_asked = place.is_draining
        self.share()

    def leave(self, workers: Collection[str]) -> None:
        """Removes workers."""
        for worker in workers:
            entry = self._entries.pop(worker, None)
            if entry is not None:
                entry.wake()
                self.changed.discard(worker)
                self.gone.add(worker)
        self.share()

    def ask_to_drain(self, worker: str, session: str) -> bool:
        """Marks a worker as draining; returns whether that is new. A session after the request is not affected."""
        entry = self._entries.get(worker)
        if entry is None or entry.session != session or entry.is_drain_asked or entry.is_draining:
            return False
        entry.is_drain_asked = True
        self.changed.add(worker)
        entry.wake()
        self.share()
        return True

    def silent(self, since_s: float) -> list[str]:
        """Returns the workers without a message since this time."""
        return [entry.worker for entry in self._entries.values() if entry.heard_s < since_s]

    def share(self) -> None:
        """Assigns the queue processes; wakes the workers whose assignment has changed."""
        taking = {
            worker: entry.kind
            for worker, entry in self._entries.items()
            if not entry.is_draining and not entry.is_drain_asked
        }
        before = {worker: entry.queues for worker, entry in self._entries.items()}
        assigned = assign(taking, self._order, before, self._queues.breadth)
        for worker, entry in self._entries.items():
            queues = assigned.get(worker, ())
            if queues != entry.queues:
                entry.queues = queues
                self.changed.add(worker)
                entry.wake()

    def split(self, queues: Iterable[str]) -> tuple[list[str], list[str]]:
        """Splits queue processes into high and normal ones."""
        high = [queue for queue in queues if queue in self._queues.high]
        return high, [queue for queue in queues if queue not in self._queues.high]

    def served(self) -> dict[str, list[str]]:
        """Returns the workers of each queue process."""
        return {queue: [entry.worker for entry in self.all() if queue in entry.queues] for queue in self._order}
