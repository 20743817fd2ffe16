"""Messages of workers are not lost while the journal is full."""

from collections.abc import Callable

import pytest

from holdfast.core import commands
from holdfast.core.commands import ReportRow
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.core.lifecycle import CANCELED, DONE, FAILED, QUEUED, RUNNING
from holdfast.core.model import NewJob, Template
from holdfast.ledger.coordinator import CommandLane, Coordinator, CoordinatorPorts, LoopConfig
from holdfast.ledger.group_commit import NO_SPACE
from holdfast.ledger.pending_reports import WaitingReports
from holdfast.ledger.sessions import Hello, Session, SessionConfig, SessionDispatcher, SessionPush
from holdfast.limits import OUTCOME_BYTES
from holdfast_lab.simulation.scheduler import ScheduledCall, SimulatedScheduler


class Machine:
    """All ports of a coordinator: a clock that is stepped by hand, and a journal that can be full."""

    epoch = 1

    def __init__(self) -> None:
        self.clock = SimulatedScheduler()
        self.end_position = 0
        self.is_full = False
        #: The free bytes while it is full.
        self.left_bytes = 0

    def soon(self, call: Callable[[], None]) -> None:
        self.clock.after(0, "turn", call)

    def later(self, delay_ms: int, call: Callable[[], None]) -> ScheduledCall:
        return self.clock.after(delay_ms * 1_000, "timer", call)

    def run(self, work: Callable[[], int], done: Callable[[int | BaseException], None], *, is_lone: bool) -> None:
        self.clock.after(0, "sync", lambda: done(work()))

    def reserve(self, size: int, *, spare: int = 0) -> bool:
        if self.is_full and size + spare > self.left_bytes:
            return False
        self.left_bytes -= size if self.is_full else 0
        return True

    def write(self, body: bytes, count: int, digest: int, now_ms: int | None = None) -> int:
        self.end_position += count
        return self.end_position

    def fatal(self, error: BaseException) -> None:
        raise error

    def stop_for_ms(self, ms: int) -> None:
        """Suspends the process: time passes, but nothing in the process runs."""
        self.clock.now_us += ms * 1_000

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

    def __init__(self, lease_ms: int = 60_000) -> None:
        self.machine = machine = Machine()
        world = CoordinatorPorts(machine.clock, machine, machine, machine.fatal)
        self.ledger = Ledger(LedgerConfig())
        self.coordinator = Coordinator(self.ledger, machine, world, LoopConfig())
        self.dispatcher = SessionDispatcher(self.coordinator, SessionConfig(lease_ms, 60_000))
        self.coordinator.start()
        self.session, self.pushes = self.attach()
        submit = commands.Submit([Template("type")], [NewJob("job", 0)])
        self.coordinator.call(CommandLane.SUBMIT, submit, lambda _: None)
        self.dispatcher.grant_credits(self.session, 1)
        machine.pass_ms(10)
        assert self.job_state() == RUNNING

    def attach(self, held: frozenset[int] = frozenset()) -> tuple[Session, list[SessionPush]]:
        pushes: list[SessionPush] = []
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
    """A shop whose worker holds token 1."""
    return Shop()


def test_released_lease_goes_back_once_there_is_room(shop: Shop) -> None:
    """A release that did not fit into the journal is retried, although the worker keeps sending heartbeats."""
    shop.dispatcher.drain(shop.session)
    shop.machine.is_full = True
    shop.dispatcher.release(shop.session, frozenset({1}))
    shop.machine.pass_ms(50)
    shop.machine.is_full = False
    shop.dispatcher.heartbeat(shop.session)
    shop.machine.pass_ms(500)
    assert shop.job_state() == QUEUED


def test_attach_is_answered_once_there_is_room(shop: Shop) -> None:
    """A worker that attaches while the journal is full is welcomed as soon as there is space."""
    shop.machine.is_full = True
    _, pushes = shop.attach(held=frozenset())
    assert pushes == []
    shop.machine.is_full = False
    shop.machine.pass_ms(500)
    assert [push.is_welcome for push in pushes] == [True]


def test_report_over_a_gap_is_not_acknowledged(shop: Shop) -> None:
    """A later report is not acknowledged before an earlier one that did not fit into the journal."""
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


#: An output without reserved space.
LARGE = bytes(100_000)


def waiting(shop: Shop, left_bytes: int = 10_000) -> None:
    """Fills the disk, so that the report of the only job waits for space."""
    shop.pushes.clear()
    shop.machine.is_full, shop.machine.left_bytes = True, left_bytes
    shop.dispatcher.report(shop.session, 1, [ReportRow("job", 1, DONE, LARGE)])
    shop.machine.pass_ms(50)
    assert shop.job_state() == RUNNING


def test_waiting_report_outlives_its_lease() -> None:
    """A report whose output does not fit is acknowledged once it does, even after an hour without heartbeats."""
    shop = Shop(lease_ms=1_000)
    waiting(shop)
    shop.machine.pass_ms(3_600_000)
    assert (shop.job_state(), shop.pushes) == (RUNNING, [])
    shop.machine.is_full = False
    shop.machine.pass_ms(500)
    assert (shop.job_state(), shop.pushes[-1].reported) == (DONE, 1)


def test_waiting_report_outlives_its_worker() -> None:
    """If a worker whose report waits reconnects without leases, the outcome counts and the job does not run again."""
    shop = Shop(lease_ms=1_000)
    waiting(shop)
    shop.dispatcher.detach(shop.session)
    shop.machine.pass_ms(5_000)
    shop.session, shop.pushes = shop.attach(held=frozenset())
    shop.dispatcher.grant_credits(shop.session, 1)
    shop.machine.pass_ms(5_000)
    assert shop.job_state() == RUNNING
    shop.machine.is_full = False
    shop.machine.pass_ms(500)
    assert shop.job_state() == DONE
    assert not any(push.leases for push in shop.pushes)


def test_repeated_report_waits_once_and_is_acknowledged_to_the_newest_session() -> None:
    """A worker that reconnects and reports again gets the acknowledgement, and the first outcome counts."""
    shop = Shop()
    waiting(shop)
    shop.session, shop.pushes = shop.attach(held=frozenset({1}))
    shop.dispatcher.report(shop.session, 1, [ReportRow("job", 1, DONE, LARGE)])
    shop.dispatcher.report(shop.session, 1, [ReportRow("job", 1, DONE, LARGE)])
    shop.machine.pass_ms(500)
    shop.machine.is_full = False
    shop.machine.pass_ms(500)
    assert shop.pushes[-1].reported == 1
    assert shop.job_state() == DONE


def test_outcome_without_output_has_room_on_a_full_disk(shop: Shop) -> None:
    """On a full disk an outcome uses the space that was reserved for its lease."""
    shop.machine.is_full, shop.machine.left_bytes = True, OUTCOME_BYTES
    answers: list[object] = []
    shop.coordinator.call(CommandLane.WORK, commands.Cancel("job", "x" * 200), answers.append)
    shop.machine.pass_ms(50)
    assert answers == [NO_SPACE]
    shop.dispatcher.report(shop.session, 1, [ReportRow("job", 1, FAILED, b"", "s" * 1_024, "r" * 1_024)])
    shop.machine.pass_ms(50)
    assert shop.job_state() == FAILED


def test_lease_is_taken_back_on_a_full_disk() -> None:
    """The lease of a silent worker expires although the disk is full."""
    shop = Shop(lease_ms=1_000)
    shop.dispatcher.drain(shop.session)
    shop.machine.is_full, shop.machine.left_bytes = True, OUTCOME_BYTES
    shop.machine.pass_ms(2_000)
    assert shop.job_state() == QUEUED


def test_grant_is_refused_without_room_for_its_outcome(shop: Shop) -> None:
    """Grants stop while there is still space for cancels."""
    submit = commands.Submit([Template("type")], [NewJob("next", 0)])
    shop.coordinator.call(CommandLane.SUBMIT, submit, lambda _: None)
    shop.machine.pass_ms(50)
    shop.machine.is_full, shop.machine.left_bytes = True, 2 * OUTCOME_BYTES + 1_000
    shop.dispatcher.grant_credits(shop.session, 1)
    shop.machine.pass_ms(50)
    assert shop.ledger.state.jobs["next"].state == QUEUED
    answers: list[object] = []
    shop.coordinator.call(CommandLane.WORK, commands.Cancel("next", ""), answers.append)
    shop.machine.pass_ms(50)
    assert shop.ledger.state.jobs["next"].state == CANCELED
    assert answers != [NO_SPACE]


Calls = list[object]


def test_reports_beyond_the_bound_wait_at_their_worker() -> None:
    """The coordinator keeps waiting reports up to `bytes_max`, and the session retries the others."""
    reports = WaitingReports(bytes_max=150_000)
    first, second = (commands.Report("worker", [ReportRow(job, 1, DONE, LARGE)]) for job in ("first", "second"))
    earlier, later = Calls().append, Calls().append
    assert reports.add(first, earlier) is None
    assert reports.add(second, later) is later
    assert reports.add(first, later) is earlier
    assert reports.first() == (first, later)
    reports.remove(first)
    assert reports.add(second, later) is None
