"""The coordinator's loop and its dispatcher, stepped by hand: dispatch, quiet periods and eviction."""

import pytest

from holdfast.core import commands
from holdfast.core.commands import GrantedLease, ReportRow
from holdfast.core.events import AnyEvent
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.core.lifecycle import DONE
from holdfast.core.model import NewJob, Note, Now, QueueMode, Template
from holdfast.journal.errors import JournalFailedError
from holdfast.ledger.coordinator import CommandLane, Coordinator, CoordinatorPorts, LoopConfig
from holdfast.ledger.sessions import Hello, Session, SessionConfig, SessionDispatcher, SessionPush
from tests.simulation.test_sessions_without_room import Machine


class Shop:
    """A coordinator without workers."""

    def __init__(self, config: LoopConfig | None = None) -> None:
        self.machine = machine = Machine()
        world = CoordinatorPorts(machine.clock, machine, machine, machine.fatal)
        self.ledger = Ledger(LedgerConfig())
        self.coordinator = Coordinator(self.ledger, machine, world, config or LoopConfig())
        self.dispatcher = SessionDispatcher(self.coordinator, SessionConfig(60_000, 4_000))
        self.coordinator.start()
        machine.pass_ms(10)

    def attach(self, name: str, room: int, *queues: str) -> tuple[Session, list[GrantedLease]]:
        leases: list[GrantedLease] = []

        def push(push: SessionPush) -> None:
            leases.extend(push.leases)

        session = Session(Hello(name, frozenset({"type"}), frozenset(queues)), push, lambda: None)
        self.dispatcher.attach(session)
        self.dispatcher.grant_credits(session, room)
        self.machine.pass_ms(10)
        return session, leases

    def set_mode(self, queue: str, mode: QueueMode) -> None:
        self.coordinator.call(CommandLane.SUBMIT, commands.SetQueueMode(queue, mode, ""), lambda _: None)
        self.machine.pass_ms(10)

    def submit(self, queue: str, count: int) -> None:
        jobs = [NewJob(f"{queue}-{number}", 0) for number in range(count)]
        self.coordinator.call(CommandLane.SUBMIT, commands.Submit([Template("type", queue)], jobs), lambda _: None)
        self.machine.pass_ms(10)


def test_short_queue_is_shared_beside_a_long_one() -> None:
    """Jobs of other queues do not enlarge a share: both workers of a queue get half of it."""
    shop = Shop()
    shop.submit("other", 900)
    _, first = shop.attach("first", 100, "queue")
    _, second = shop.attach("second", 100, "queue")
    shop.submit("queue", 10)
    assert (len(first), len(second)) == (5, 5)


def test_jobs_above_the_retention_limit_are_evicted_without_a_command() -> None:
    """Finished jobs above the retention limit are removed at once, even if no command arrives."""
    shop = Shop(LoopConfig(retain_jobs=1_000_000))
    for part in range(3):
        shop.submit(f"q{part}", 1_000)
    session, leases = shop.attach("worker", 3_000)
    shop.machine.pass_ms(100)
    rows = [ReportRow(lease.job_id, lease.token, DONE) for lease in leases]
    shop.dispatcher.report(session, 1, rows)
    shop.machine.pass_ms(100)
    assert len(shop.ledger.state.finished) == 3_000
    shop.coordinator._retention = commands.Evict(1 << 40, 10, 1 << 40)  # as after a restart with another setting
    shop.coordinator.wake()
    shop.machine.pass_ms(100)
    assert len(shop.ledger.state.finished) == 10


def test_observer_that_raises_stops_the_process() -> None:
    """The process stops, because an applied event without a frame would be a state that replay cannot build."""
    shop = Shop()

    class Broken:
        def applied(self, position: int, event: AnyEvent, ledger: Ledger) -> None:
            raise RuntimeError("a mistake")

        def durable(self, position: int) -> None: ...

        def bug(self, command: object, error: Exception) -> None: ...

    shop.coordinator.observers.append(Broken())
    shop.submit("queue", 1)
    assert not shop.coordinator.is_serving


def test_journal_that_failed_beside_the_loop_stops_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator stops when a reservation shows that the journal failed, because no event can become durable."""
    shop = Shop()

    def fail(*_: object, **__: object) -> bool:
        raise JournalFailedError("a segment could not be removed")

    monkeypatch.setattr(shop.machine, "reserve", fail)
    shop.submit("queue", 1)
    assert not shop.coordinator.is_serving


def test_silent_worker_gets_no_job_after_a_quiet_minute() -> None:
    """The time without heartbeats also counts while nothing else happens."""
    shop = Shop()
    _, leases = shop.attach("worker", 1)
    shop.machine.pass_ms(60_000)
    shop.submit("queue", 1)
    assert leases == []


def test_returned_credits_are_granted_again() -> None:
    """A credit whose lease ended before it was sent brings another job, unless the worker withdrew its credits."""
    shop = Shop()
    session, leases = shop.attach("worker", 1)
    shop.submit("queue", 5)
    shop.dispatcher.return_credits(session, 1)
    shop.machine.pass_ms(10)
    assert (len(leases), session.credits) == (2, 0)
    shop.dispatcher.recall(session)
    shop.dispatcher.return_credits(session, 1)
    shop.machine.pass_ms(10)
    assert (len(leases), session.credits) == (2, 0)
    shop.dispatcher.grant_credits(session, 1)
    shop.dispatcher.return_credits(session, 1)
    shop.machine.pass_ms(10)
    assert (len(leases), session.credits) == (4, 0)
    shop.dispatcher.drain(session)
    shop.dispatcher.return_credits(session, 1)
    shop.machine.pass_ms(10)
    assert (len(leases), session.credits) == (4, 0)


def test_returned_credits_are_no_sign_of_life() -> None:
    """A worker that sends nothing stays silent when credits are returned to its session."""
    shop = Shop()
    session, leases = shop.attach("worker", 1)
    shop.submit("queue", 1)
    shop.machine.pass_ms(60_000)
    shop.dispatcher.return_credits(session, 1)
    shop.submit("other", 1)
    assert len(leases) == 1
    shop.dispatcher.heartbeat(session)
    shop.machine.pass_ms(10)
    assert len(leases) == 2


def test_paused_queue_grants_no_job_until_it_is_opened() -> None:
    """A worker with free slots gets no jobs of a paused queue, other jobs at once, and the rest once it opens."""
    shop = Shop()
    _, leases = shop.attach("worker", 100)
    shop.set_mode("queue", QueueMode.PAUSED)
    shop.submit("queue", 3)
    shop.submit("other", 2)
    assert [lease.job_id for lease in leases] == ["other-0", "other-1"]
    shop.set_mode("queue", QueueMode.OPEN)
    assert [lease.job_id for lease in leases[2:]] == ["queue-0", "queue-1", "queue-2"]


def test_paused_jobs_make_no_share_larger() -> None:
    """Jobs of a paused queue are not counted in shares: both workers get half of the other jobs."""
    shop = Shop()
    shop.set_mode("other", QueueMode.PAUSED)
    shop.submit("other", 900)
    _, first = shop.attach("first", 100)
    _, second = shop.attach("second", 100)
    shop.submit("queue", 10)
    assert (len(first), len(second)) == (5, 5)


def test_loop_is_still_while_all_that_waits_is_paused() -> None:
    """Ready jobs of a paused queue do not keep the loop running."""
    shop = Shop()
    shop.set_mode("queue", QueueMode.PAUSED)
    shop.submit("queue", 3)
    shop.attach("worker", 100)
    turns = 0

    class Counter:
        is_watching = False

        def follow(self, now: Now) -> None:
            nonlocal turns
            turns += 1

    shop.coordinator.followers.append(Counter())
    shop.machine.pass_ms(10_000)
    assert turns <= 10_000 // LoopConfig().tick_ms + 1


def test_progress_is_known_until_the_lease_ends() -> None:
    """The board has a note of the lease holder, none of another worker, and drops it with the report."""
    shop = Shop()
    session, leases = shop.attach("worker", 2)
    other, _ = shop.attach("other", 0)
    shop.submit("queue", 2)
    shop.dispatcher.note(session, [Note("queue-0", leases[0].token, 250, "a quarter")])
    shop.dispatcher.note(other, [Note("queue-1", leases[1].token, 250)])
    shop.machine.pass_ms(10)
    known = shop.dispatcher.progress.get(leases[0].token)
    assert known is not None
    assert (known.permille, known.message) == (250, "a quarter")
    assert shop.dispatcher.progress.get(leases[1].token) is None
    shop.dispatcher.report(session, 1, [ReportRow("queue-0", leases[0].token, DONE)])
    shop.machine.pass_ms(10)
    assert len(shop.dispatcher.progress) == 0


def test_worker_can_be_asked_to_drain() -> None:
    """The session of a connected worker receives the drain request and shows as draining; no other can be drained."""
    shop = Shop()
    heard: list[SessionPush] = []
    session = Session(Hello("worker", frozenset({"type"})), heard.append, lambda: None)
    shop.dispatcher.attach(session)
    shop.machine.pass_ms(10)
    assert shop.dispatcher.ask_drain("worker")
    assert [push.is_drain_asked for push in heard] == [False, True]
    (info,) = shop.dispatcher.registry.all()
    assert info.is_draining
    shop.dispatcher.detach(session)
    assert not shop.dispatcher.ask_drain("worker")
    assert not shop.dispatcher.ask_drain("nobody")


def last_chance(shop: Shop) -> tuple[Session, Session, list[GrantedLease]]:
    """A job that one more loss would end is leased by one worker, while another one has a free slot."""
    template = Template("type", "queue", max_losses=1)
    shop.coordinator.call(CommandLane.SUBMIT, commands.Submit([template], [NewJob("job", 0)]), lambda _: None)
    shop.machine.pass_ms(10)
    holder, _ = shop.attach("holder", 1)
    idle, granted = shop.attach("idle", 1)
    return holder, idle, granted


def test_last_chance_goes_to_a_worker_that_was_silent_once_it_is_heard() -> None:
    """If the only worker with a free slot is silent when the job returns, its next heartbeat gets the job granted."""
    shop = Shop()
    holder, idle, granted = last_chance(shop)
    for _ in range(10):
        shop.machine.pass_ms(500)
        shop.dispatcher.heartbeat(holder)
    shop.dispatcher.detach(holder, is_leaving=True)
    shop.machine.pass_ms(50)
    assert granted == []
    shop.dispatcher.heartbeat(idle)
    shop.machine.pass_ms(500)
    assert [lease.job_id for lease in granted] == ["job"]


def test_last_chance_is_granted_once_there_is_room() -> None:
    """A grant that does not fit into the journal is retried when there is space."""
    shop = Shop()
    holder, idle, granted = last_chance(shop)
    shop.machine.is_full, shop.machine.left_bytes = True, 4_096
    shop.dispatcher.detach(holder, is_leaving=True)
    shop.machine.pass_ms(1_000)
    shop.dispatcher.heartbeat(idle)
    assert granted == []
    shop.machine.is_full = False
    for _ in range(2):
        shop.machine.pass_ms(500)
        shop.dispatcher.heartbeat(idle)
    assert [lease.job_id for lease in granted] == ["job"]
