"""Random orders of a client: the same seed and name draw the same orders.

Each kind of order has its own random stream, and the client's next step is drawn from another one. So an order does not
depend on the number of other orders, or on any response.
"""

import hashlib
import random
import uuid
from collections.abc import Callable

import msgspec

from holdfast import limits
from holdfast_lab.history.records import JobSpec
from holdfast_lab.torture.jobs import POISON, WORK, Task
from holdfast_lab.torture.load.interfaces import JobOrder

#: The queues of most jobs.
QUEUES = ("default", "torture-a", "torture-b")
#: The queue that is paused now and then.
PAUSED_QUEUE = "torture-p"
#: The job type of clients of the frozen contract.
FROZEN_TYPE = "torture-frozen"
_BATCH_MAX = 10
_ATTEMPTS_MAX = 4
#: A few jobs run so long that several faults in a row hit the same attempt, or all attempts.
_LONG_MS = (2_000, 6_000)

#: Returns the index of the node that owns a key.
Owner = Callable[[str], int]


class OrderGenerator:
    """Draws the orders of one client."""

    def __init__(self, seed: int, client: str, owner: Owner = lambda key: 0) -> None:  # noqa: ARG005 - one node has all
        #: For all other choices of the client.
        self.draw = random.Random(f"{seed} {client}")
        self._orders = _Stream(seed, client, "")
        self._waiting = _Stream(seed, client, "waiting-")
        self._others = _Stream(seed, client, "other-")
        self._keys = _Stream(seed, client, "key-")
        self._owner = owner

    def orders(self, *, has_ids: bool, has_options: bool) -> list[JobOrder]:
        """Draws one job or sometimes a batch; either all of them can be repeated, or none."""
        draw = self._orders.draw
        count = draw.randint(2, _BATCH_MAX) if has_options and draw.random() < 0.2 else 1  # noqa: PLR2004 - a share
        kind = draw.choices(("plain", "key", "id"), (2, 4, 3))[0]
        if kind == "id" and not has_ids:
            kind = "key"
        node = -1
        made = []
        for _ in range(count):
            queue = draw.choice((QUEUES[0], *QUEUES, PAUSED_QUEUE))
            order = self._orders.order(queue) if has_options else self._orders.frozen()
            handle = self._handle(self._orders, kind, order.wanted.name, node)
            if handle:
                node = self._owner(handle)
                field = {"key": handle} if kind == "key" else {"id": handle}
                order = msgspec.structs.replace(order, wanted=msgspec.structs.replace(order.wanted, **field))
            made.append(order)
        return made

    def waiting(self) -> JobOrder:
        """Draws a job that is not due for some seconds."""
        name, delay_ms = self._waiting.name(), self._waiting.draw.randint(2_000, 5_000)
        return _with_digest(JobSpec(name, type=WORK, priority=limits.PRIORITY_DEFAULT, delay_ms=delay_ms), Task())

    def other_under(self, used: JobOrder) -> JobOrder:
        """Draws other content under a used key."""
        is_frozen = used.wanted.type == FROZEN_TYPE
        order = self._others.frozen() if is_frozen else self._others.order(QUEUES[0])
        return msgspec.structs.replace(order, wanted=msgspec.structs.replace(order.wanted, key=used.wanted.key))

    def key_beside(self, key: str) -> str:
        """Returns a new key that belongs to the same node as `key`."""
        return self._handle(self._keys, "key", self._keys.name(), self._owner(key))

    def _handle(self, stream: "_Stream", kind: str, name: str, node: int) -> str:
        """Draws a key or an id that belongs to this node (-1: any node); empty for plain jobs."""
        if kind == "plain":
            return ""
        while True:
            number = stream.draw.getrandbits(128)
            handle = str(uuid.UUID(int=number, version=4)) if kind == "id" else f"{name}-{number & 0xFFFF:04x}"
            if node in {-1, self._owner(handle)}:
                return handle


class _Stream:
    """The random stream of one kind of order of one client."""

    def __init__(self, seed: int, client: str, mark: str) -> None:
        self.draw = random.Random(f"{seed} {client} {mark}orders")
        self._names = f"{client}-{mark}"
        self._count = 0

    def name(self) -> str:
        """Returns a name that is unique in the run."""
        self._count += 1
        return f"{self._names}{self._count}"

    def order(self, queue: str) -> JobOrder:
        """Draws an order with all options."""
        draw = self.draw
        times_ms = (0, draw.randint(1, 30), draw.randint(100, 600), draw.randint(*_LONG_MS))
        takes_ms = draw.choices(times_ms, (100, 200, 20, 1))[0]
        output_bytes = draw.choice((0, 0, 0, 100, 5_000))
        priority = draw.choice((limits.PRIORITY_DEFAULT, limits.PRIORITY_DEFAULT, draw.randint(0, 9)))
        delay_ms = draw.choices((0, draw.randint(50, 3_000)), (12, 1))[0]
        kind = draw.choices((WORK, "failing", POISON), (20, 2, 1))[0]
        attempts = draw.randint(2, _ATTEMPTS_MAX)
        fails = draw.randint(1, attempts - 1) if kind == "failing" else attempts if kind == POISON else 0
        wanted = JobSpec(
            self.name(),
            type=POISON if kind == POISON else WORK,
            queue=queue,
            priority=priority,
            delay_ms=delay_ms,
            max_attempts=attempts,
            fails=fails,
        )
        return _with_digest(wanted, Task(takes_ms, 0 if kind == POISON else fails, output_bytes))

    def frozen(self) -> JobOrder:
        """Draws an order that the frozen contract supports."""
        wanted = JobSpec(self.name(), type=FROZEN_TYPE, priority=limits.PRIORITY_DEFAULT, max_attempts=1)
        return _with_digest(wanted, Task(self.draw.randint(0, 50), 0, self.draw.choice((0, 100))))


def _with_digest(wanted: JobSpec, task: Task) -> JobOrder:
    """Adds a digest of the content, by which orders are compared."""
    content = msgspec.json.encode([wanted, task])
    digest = hashlib.sha256(content).hexdigest()[:12]
    return JobOrder(msgspec.structs.replace(wanted, digest=digest), task)
