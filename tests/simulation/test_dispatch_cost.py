"""The cost of dispatch in function calls does not grow with the number of workers and queues.

The tests count calls, not entries of one data structure, so that the limits hold for any implementation.
"""

import contextlib
import ctypes
import sys
import threading
from collections.abc import Callable
from types import FrameType
from unittest.mock import ANY

import pytest

from holdfast.core import commands
from holdfast.core.commands import GrantedLease, Heard, ReportReply, ReportRow
from holdfast.core.events import Revoked
from holdfast.core.lifecycle import DONE
from holdfast.core.model import NewJob, Template
from holdfast.ledger.coordinator import CommandLane, LoopConfig
from holdfast.ledger.sessions import Hello, Session, SessionPush
from holdfast.limits import QUARANTINE_MS
from tests.simulation.test_dispatch import Shop

FEW, MANY = 100, 10_000


class Counted(Shop):
    """A coordinator whose turns are counted in function calls, of Python and C functions."""

    def __init__(self, config: LoopConfig | None = None) -> None:
        self.turns: list[int] = []
        super().__init__(config)
        soon = self.machine.soon
        self.machine.soon = lambda call: soon(lambda: self.turns.append(calls_in(call)))  # type: ignore[method-assign]

    def offer(self, name: str, room: int, *queues: str) -> list[GrantedLease]:
        """Attaches a worker with credits, without running a turn."""
        leases: list[GrantedLease] = []

        def push(push: SessionPush) -> None:
            leases.extend(push.leases)

        session = Session(Hello(name, frozenset({"type"}), frozenset(queues)), push, lambda: None)
        self.dispatcher.attach(session)
        self.dispatcher.grant_credits(session, room)
        return leases

    def calls_of(self, act: Callable[[], None]) -> int:
        """The number of calls in `act` and in the turns that follow."""
        self.turns.clear()
        calls = calls_in(act)
        self.machine.pass_ms(10)
        return calls + sum(self.turns)

    def enqueue(self, job_id: str, queue: str) -> None:
        command = commands.Submit([Template("type", queue)], [NewJob(job_id, 0)])
        self.coordinator.call(CommandLane.SUBMIT, command, lambda _: None)


def calls_in(act: Callable[[], None]) -> int:
    """The number of function calls in `act`."""
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    forget_interrupts()
    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(None)
    return calls


class Nudge(BaseException):
    """An exception that this thread raises in itself."""


def forget_interrupts() -> None:
    """Resets the interpreter's flag for an asynchronous exception that is pending in another thread.

    An attempt that was interrupted in C code leaves such a thread behind. While one is pending, Python 3.11 enters no
    function under a profiler: it checks the flag again and again (fixed in 3.12). The flag is shared by all threads,
    and a delivered exception clears it.
    """
    with contextlib.suppress(Nudge):
        here, nudge = ctypes.c_ulong(threading.get_ident()), ctypes.py_object(Nudge)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(here, nudge)
        for _ in range(1_000):
            pass
        raise AssertionError("the exception did not arrive")


def test_calls_are_counted_although_another_thread_cannot_be_interrupted() -> None:
    """A pending exception for a thread in C code does not block the count in this thread."""
    gate = threading.Event()

    def wait() -> None:
        with contextlib.suppress(Nudge):
            gate.wait()

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(Nudge))
        assert calls_in(lambda: None) > 0
    finally:
        gate.set()
        thread.join()


def _submit_calls(workers: int, *, are_alike: bool) -> int:
    shop = Counted()
    for number in range(workers):
        queues = () if are_alike else ("queue", f"own-{number}")
        session = Session(Hello(f"w{number}", frozenset({"type"}), frozenset(queues)), lambda _: None, lambda: None)
        shop.dispatcher.attach(session)
        shop.dispatcher.grant_credits(session, 1)
    shop.machine.pass_ms(100)
    shop.calls_of(lambda: shop.enqueue("warm", "queue"))
    calls = shop.calls_of(lambda: shop.enqueue("job", "queue"))
    assert len(shop.ledger.state.leases) == 2
    return calls


@pytest.mark.parametrize("are_alike", [True, False], ids=["alike", "each-its-own-queues"])
def test_submit_costs_as_much_beside_many_idle_workers(are_alike: bool) -> None:  # noqa: FBT001 - a parameter
    """Finding one of 10,000 idle workers costs about as much as one of 100, even if each wants different queues."""
    few, many = (_submit_calls(count, are_alike=are_alike) for count in (FEW, MANY))
    assert many <= 2 * few


def _grant_calls(queues: int, *, are_named: bool) -> int:
    shop = Counted()
    names = [f"q{number}" for number in range(queues)]
    for name in names:
        shop.enqueue(name, name)
    shop.machine.pass_ms(1_000)
    session, leases = shop.attach("worker", 1, *(names if are_named else ()))
    calls = 0
    for number in (1, 2):
        rows = [ReportRow(leases[-1].job_id, leases[-1].token, DONE)]

        def report(number: int = number, rows: list[ReportRow] = rows) -> None:
            shop.dispatcher.report(session, number, rows)
            shop.dispatcher.grant_credits(session, 1)

        calls = shop.calls_of(report)
    assert len(leases) == 3
    return calls


@pytest.mark.parametrize("are_named", [False, True], ids=["all-queues", "named-queues"])
def test_grant_costs_as_much_beside_many_queues(are_named: bool) -> None:  # noqa: FBT001 - a parameter
    """Finding the next of 9,900 queues costs about as much as the next of 100."""
    few, many = (_grant_calls(count, are_named=are_named) for count in (FEW, MANY - FEW))
    assert many <= 2 * few


def test_no_turn_grows_with_queues_and_workers() -> None:
    """When 300 workers attach while jobs wait in 9,900 queues, the longest turn is bounded and all slots are filled."""
    shop = Counted()
    for number in range(9_900):
        shop.enqueue(f"job-{number}", f"q{number}")
    shop.machine.pass_ms(1_000)
    sessions = []
    for number in range(300):
        session = Session(Hello(f"w{number}", frozenset({"type"})), lambda _: None, lambda: None)
        sessions.append(session)
        shop.dispatcher.attach(session)
    shop.machine.pass_ms(100)
    shop.turns.clear()
    for session in sessions:
        shop.dispatcher.grant_credits(session, 10)
    shop.machine.pass_ms(100)
    assert len(shop.ledger.state.leases) == 3_000
    # A step is about ten calls; a turn has two thousand steps for dispatch, and as many for commands.
    assert max(shop.turns) < 60_000


def test_no_turn_grows_with_waiting_commands() -> None:
    """Thousands of simultaneous heartbeats are processed over several turns."""
    shop = Counted()
    sessions = [shop.attach(f"w{number}", 1)[0] for number in range(10)]
    shop.turns.clear()
    for _ in range(500):
        for session in sessions:
            shop.dispatcher.heartbeat(session)
    shop.machine.pass_ms(100)
    assert max(shop.turns) < 20_000


def test_jobs_beyond_one_turn_are_granted_in_the_next() -> None:
    """Jobs that exceed the steps of a turn are granted in the next one, even if nothing else happens."""
    shop = Counted(LoopConfig(turn_steps=50))
    leases = [shop.offer(f"w{number}", 1) for number in range(100)]
    shop.machine.pass_ms(10)
    for number in range(100):
        shop.enqueue(f"job-{number}", "queue")
    shop.machine.pass_ms(20)
    assert [len(one) for one in leases] == [1] * 100
    newcomers = [shop.offer(f"v{number}", 1) for number in range(20)]
    shop.submit("later", 20)
    assert [len(one) for one in newcomers] == [1] * 20


def test_workers_take_turns() -> None:
    """Jobs that arrive one by one go to the worker that was served least recently, whatever queues it names."""
    shop = Counted()
    leases = [shop.offer(f"w{number}", 4, *(("queue",) if number == 2 else ())) for number in range(3)]
    shop.machine.pass_ms(10)
    for number in range(4):
        shop.submit(f"queue-{number}", 1)
    assert [len(one) for one in leases[:2]] == [2, 2]


def test_silent_worker_is_served_again_once_it_is_heard() -> None:
    """A worker that was skipped while it was silent gets the next job after its heartbeat."""
    shop = Shop()
    session, leases = shop.attach("worker", 2)
    shop.machine.pass_ms(60_000)
    shop.submit("queue", 1)
    assert leases == []
    shop.dispatcher.heartbeat(session)
    shop.machine.pass_ms(10)
    assert [lease.job_id for lease in leases] == ["queue-0"]


def test_job_on_its_last_chance_finds_the_worker_that_is_free() -> None:
    """A job on its last chance goes to the worker without leases, which then gets no other job."""
    shop = Shop()
    risky = Template("type", "queue", max_losses=1)
    shop.coordinator.call(CommandLane.SUBMIT, commands.Submit([risky], [NewJob("risky", 0)]), lambda _: None)
    lost, _ = shop.attach("lost", 1)
    busy = [shop.attach(f"busy-{number}", 2) for number in range(3)]
    shop.submit("plain", 3)
    assert [len(leases) for _, leases in busy] == [1, 1, 1]
    _, free = shop.attach("free", 2, "queue", "other")
    shop.dispatcher.detach(lost, is_leaving=True)
    shop.machine.pass_ms(10)
    assert [lease.job_id for lease in free] == ["risky"]
    shop.submit("other", 1)
    assert [lease.job_id for lease in free] == ["risky"]
    shop.machine.pass_ms(1)


def test_solitude_of_a_worker_ends_by_time() -> None:
    """A worker that has run a job on its last chance for a minute gets other jobs, even if nothing else happens."""
    shop = Shop()
    risky = Template("type", "queue", max_losses=1)
    shop.coordinator.call(CommandLane.SUBMIT, commands.Submit([risky], [NewJob("risky", 0)]), lambda _: None)
    lost, _ = shop.attach("lost", 1)
    shop.dispatcher.detach(lost, is_leaving=True)
    shop.machine.pass_ms(10)
    session, leases = shop.attach("worker", 2)
    shop.submit("plain", 1)
    assert [lease.job_id for lease in leases] == ["risky"]
    for _ in range(QUARANTINE_MS // 1_000 + 2):
        shop.dispatcher.heartbeat(session)
        shop.machine.pass_ms(1_000)
    assert [lease.job_id for lease in leases] == ["risky", "plain-0"]


class Expiring(Counted):
    """Many workers, each with one lease."""

    def __init__(self, workers: int, config: LoopConfig | None = None) -> None:
        super().__init__(config)
        self.sessions = []
        for number in range(workers):
            session = Session(Hello(f"w{number}", frozenset({"type"})), lambda _: None, lambda: None)
            self.sessions.append(session)
            self.dispatcher.attach(session)
            self.dispatcher.grant_credits(session, 1)
        self.machine.pass_ms(100)
        for part in range(0, workers, 1_000):
            self.submit(f"q{part}", min(1_000, workers - part))
        self.machine.pass_ms(100)
        assert len(self.ledger.state.leases) == workers
        self.machine.pass_ms(1_000)

    def share_a_deadline(self) -> None:
        """Advances to half a second before all leases expire, unless they are extended again."""
        self.beat()
        self.machine.pass_ms(59_500)
        self.turns.clear()

    def beat(self) -> None:
        for session in self.sessions:
            self.dispatcher.heartbeat(session)


def test_no_turn_grows_with_leases_that_expire_together() -> None:
    """10,000 leases that are not extended expire over several turns, and each of their jobs is queued again."""
    shop = Expiring(MANY)
    shop.share_a_deadline()
    shop.machine.pass_ms(1_000)
    assert not shop.ledger.state.leases
    assert max(shop.turns) < 60_000


def test_no_turn_grows_with_leases_that_were_extended_together() -> None:
    """The stale heap entries of 10,000 extended leases are processed over several turns."""
    shop = Expiring(MANY)
    shop.share_a_deadline()
    shop.beat()
    shop.machine.pass_ms(1_000)
    assert len(shop.ledger.state.leases) == MANY
    assert max(shop.turns) < 30_000


def test_no_turn_grows_with_workers_that_are_lost_together() -> None:
    """The leases of 10,000 workers that disconnect at once are revoked over several turns."""
    shop = Expiring(MANY)
    for session in shop.sessions:
        shop.dispatcher.detach(session)
    shop.turns.clear()
    shop.machine.pass_ms(3_000)
    assert not shop.ledger.state.leases
    assert max(shop.turns) < 60_000


def test_no_turn_grows_with_jobs_that_are_due_together() -> None:
    """10,000 jobs that are due at one instant move to their lanes over several turns, before any of them is granted."""
    shop = Counted()
    due_ms = shop.coordinator.time.now().log_ms + 10_000
    for number in reversed(range(MANY)):
        jobs = [NewJob(f"job-{number}", 0, not_before_ms=due_ms)]
        shop.coordinator.call(CommandLane.SUBMIT, commands.Submit([Template("type", "queue")], jobs), lambda _: None)
    shop.machine.pass_ms(1_000)
    leases = shop.offer("worker", 1)
    shop.machine.pass_ms(1_000)
    assert shop.ledger.state.ready.delayed == MANY
    shop.turns.clear()
    for _ in range(20):
        shop.machine.pass_ms(1_000)
        (session,) = shop.dispatcher._current.values()
        shop.dispatcher.heartbeat(session)
    assert [lease.job_id for lease in leases] == [f"job-{MANY - 1}"]
    assert max(shop.turns) < 60_000


def test_lease_that_waits_to_be_taken_back_is_over() -> None:
    """Expired leases that exceed a turn's limit count as expired too, for reports and heartbeats."""
    shop = Expiring(100, LoopConfig(turn_steps=20))
    refused: list[object] = []
    at_once = shop.machine.soon
    lease = shop.ledger.state.leases[100]

    def told(reply: object) -> None:
        refused.append((lease.token in shop.ledger.state.leases, reply))

    def report() -> None:
        rows = [ReportRow(lease.job.id, lease.token, DONE)]
        shop.coordinator.hear(commands.Extend(lease.worker, 60_000), told)
        shop.coordinator.call(CommandLane.WORK, commands.Report(lease.worker, rows), told)

    class Reporting:
        def applied(self, _position: int, event: object, _ledger: object) -> None:
            if type(event) is Revoked and not refused:
                at_once(report)
                refused.append(event.reason)

        def durable(self, _position: int) -> None: ...

        def bug(self, _command: object, _error: Exception) -> None: ...

    shop.coordinator.observers.append(Reporting())
    shop.machine.pass_ms(61_000)
    assert refused == ["expired", (True, Heard([], [])), (ANY, ReportReply(["LEASE_EXPIRED"]))]
    assert not shop.ledger.state.leases
    assert shop.ledger.job(lease.job.id).losses == 1  # type: ignore[union-attr]
