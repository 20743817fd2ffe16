"""New jobs are refused while the process is too large and its jobs may be the cause."""

from typing import cast

from holdfast.core import commands
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.core.model import NewJob, Now, Template
from holdfast.errors import Code
from holdfast.ledger.memory_limit import MemoryWatch
from holdfast.ledger.ports import Clock
from holdfast.limits import RESIDENT_SLACK_BYTES


class _Clock:
    now_ms = 0

    def steady_ms(self) -> int:
        return self.now_ms


class World:
    """A ledger with a limit, and a resident size that the test sets."""

    def __init__(self, memory_bytes: int) -> None:
        self.ledger = Ledger(LedgerConfig(memory_bytes=memory_bytes))
        self.resident = 0
        self.looks = 0
        self.clock = _Clock()
        self.watch = MemoryWatch(self.ledger, self._resident, cast("Clock", self.clock))

    def _resident(self) -> int:
        self.looks += 1
        return self.resident

    def hold(self, size: int) -> None:
        """Adds a job that takes a little more than `size` bytes."""
        count = len(self.ledger.state.jobs)
        decided = self.ledger.decide(commands.Submit([Template("a")], [NewJob(f"j{count}", 0, bytes(size))]), Now(1, 1))
        assert isinstance(decided, commands.Decision)
        assert decided.event is not None
        self.ledger.apply(decided.event)


def test_process_that_is_too_large_takes_no_new_jobs() -> None:
    """A process above its memory limit refuses new jobs, with both sizes in the message, until it is smaller."""
    world = World(1_000_000)
    world.hold(500_000)
    world.resident = 1_000_000 + RESIDENT_SLACK_BYTES
    assert world.watch.refusal() is None
    world.clock.now_ms += 200
    world.resident += 1
    refusal = world.watch.refusal()
    assert refusal is not None
    assert (refusal.code, refusal.reason) == (Code.RESOURCE_EXHAUSTED, "PROCESS_TOO_LARGE")
    assert f"{world.resident:,}" in refusal.message
    assert f"{world.watch.resident_max:,}" in refusal.message
    assert [condition.summary for condition in world.watch.conditions()] == ["new jobs are refused"]
    world.clock.now_ms += 200
    world.resident = 0
    assert world.watch.refusal() is None


def test_jobs_that_hold_little_are_not_to_blame() -> None:
    """A process that is large for another reason accepts jobs, and does not query its resident size."""
    world = World(1_000_000)
    world.hold(100_000)
    world.resident = 1 << 40
    assert world.watch.refusal() is None
    assert world.looks == 0


def test_system_is_asked_now_and_then() -> None:
    """A thousand submits within one interval query the resident size once."""
    world = World(1_000_000)
    world.hold(500_000)
    for _ in range(1_000):
        assert world.watch.refusal() is None
    assert world.looks == 1


def test_limit_of_none_refuses_nothing() -> None:
    """A ledger without a memory limit refuses nothing."""
    world = World(0)
    world.hold(500_000)
    world.resident = 1 << 40
    assert (world.watch.refusal(), world.watch.conditions()) == (None, [])


def test_operator_is_told_before_jobs_are_refused() -> None:
    """A condition warns the operator once held jobs take nine tenths of the limit."""
    world = World(1_000_000)
    world.hold(910_000)
    assert [condition.summary for condition in world.watch.conditions()] == ["held jobs take 91 % of memory_bytes"]
