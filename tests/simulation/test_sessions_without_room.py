"""What workers say while the journal has no room is not forgotten."""

from collections.abc import Callable

import pytest

from holdfast.coordinator.loop import Coordinator, Lane, LoopConfig, World
from holdfast.coordinator.sessions import Dispatcher, Hello, Push, Session, SessionConfig
from holdfast.core import commands
from holdfast.core.commands import ReportRow
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.core.lifecycle import DONE, QUEUED, RUNNING
from holdfast.core.model import NewJob, Template
from holdfast.testing.simulation.clockwork import Clockwork, Planned


class Machine:
    """All ports of a coordinator: a clock that is stepped by hand, and a journal that can be full."""

    epoch = 1

    def __init__(self) -> None:
        self.clock = Clockwork()
        self.end_position = 0
        self.is_full = False

    def soon(self, call: Callable[[], None]) -> None:
        self.clock.after(0, "turn", call)

    def later(self, delay_ms: int, call: Callable[[], None]) -> Planned:
        return self.clock.after(delay_ms * 1_000, "timer", call)

    def run(self, work: Callable[[], int], done: Callable[[int | BaseException], None], *, is_lone: bool) -> None:
        self.clock.after(0, "sync", lambda: done(work()))

    def reserve(self, size: int, *, spare: int = 0) -> bool:
        return not self.is_full

    def write(self, body: bytes, count: int, digest: int, now_ms: int | None = None) -> int:
        self.end_position += count
        return self.end_position

    def fatal(self, error: BaseException) -> None:
        raise error

    def pass_ms(self, ms: int) -> None:
        is_over = False

        def end() -> None:
            nonlocal is_over
            is_over = True

        self.clock.after(ms * 1_000, "end", end)
        while not is_over:
            self.clock.step()


class Shop:
    """A coordinator with one attached worker that holds the lease of one job."""

    def __init__(self) -> None:
        self.machine = machine = Machine()
        world = World(machine.clock, machine, machine, machine.fatal)
        self.ledger = Ledger(LedgerConfig())
        self.coordinator = Coordinator(self.ledger, machine, world, LoopConfig())
        self.dispatcher = Dispatcher(self.coordinator, SessionConfig(60_000, 60_000))
        self.coordinator.start()
        self.session, self.pushes = self.attach()
        submit = commands.Submit([Template("type")], [NewJob("job", 0)])
        self.coordinator.call(Lane.SUBMIT, submit, lambda _: None)
        self.dispatcher.grant_credits(self.session, 1)
        machine.pass_ms(10)
        assert self.job_state() == RUNNING

    def attach(self, held: frozenset[int] = frozenset()) -> tuple[Session, list[Push]]:
        pushes: list[Push] = []
        session = Session(Hello("worker", frozenset({"type"}), held=held), pushes.append, lambda: None)
        self.dispatcher.attach(session)
        self.machine.pass_ms(10)
        return session, pushes

    def job_state(self) -> int:
        job = self.ledger.job("job")
        assert job is not None
        return job.state


@pytest.fixture
def shop() -> Shop:
    """Token 1 is held by the worker."""
    return Shop()


def test_released_lease_goes_back_once_there_is_room(shop: Shop) -> None:
    """A release that found no room is tried again, although the worker keeps sending heartbeats."""
    shop.dispatcher.drain(shop.session)
    shop.machine.is_full = True
    shop.dispatcher.release(shop.session, frozenset({1}))
    shop.machine.pass_ms(50)
    shop.machine.is_full = False
    shop.dispatcher.heartbeat(shop.session)
    shop.machine.pass_ms(500)
    assert shop.job_state() == QUEUED


def test_attach_is_answered_once_there_is_room(shop: Shop) -> None:
    """A worker that attaches while there is no room is welcomed later, and not left waiting."""
    shop.machine.is_full = True
    _, pushes = shop.attach(held=frozenset())
    assert pushes == []
    shop.machine.is_full = False
    shop.machine.pass_ms(500)
    assert [push.is_welcome for push in pushes] == [True]


def test_report_over_a_gap_is_not_acknowledged(shop: Shop) -> None:
    """The acknowledgement of a later report waits for the earlier one that found no room."""
    shop.pushes.clear()
    shop.machine.is_full = True
    shop.dispatcher.report(shop.session, 1, [ReportRow("job", 1, DONE)])
    shop.machine.pass_ms(10)
    shop.machine.is_full = False
    shop.dispatcher.report(shop.session, 2, [ReportRow("unknown", 9, DONE)])
    shop.machine.pass_ms(20)
    assert all(push.reported == 0 for push in shop.pushes)
    shop.machine.pass_ms(500)
    assert shop.pushes[-1].reported == 2
    assert shop.job_state() == DONE
