"""The loop and its dispatcher, stepped by hand: who is served, when nobody asks, and what is forgotten."""

from holdfast.coordinator.loop import Coordinator, Lane, LoopConfig, World
from holdfast.coordinator.sessions import Dispatcher, Hello, Push, Session, SessionConfig
from holdfast.core import commands
from holdfast.core.commands import GrantedLease, ReportRow
from holdfast.core.events import AnyEvent
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.core.lifecycle import DONE
from holdfast.core.model import NewJob, Template
from tests.simulation.test_sessions_without_room import Machine


class Shop:
    """A coordinator without anybody."""

    def __init__(self, config: LoopConfig | None = None) -> None:
        self.machine = machine = Machine()
        world = World(machine.clock, machine, machine, machine.fatal)
        self.ledger = Ledger(LedgerConfig())
        self.coordinator = Coordinator(self.ledger, machine, world, config or LoopConfig())
        self.dispatcher = Dispatcher(self.coordinator, SessionConfig(60_000, 4_000))
        self.coordinator.start()
        machine.pass_ms(10)

    def attach(self, name: str, room: int, *queues: str) -> tuple[Session, list[GrantedLease]]:
        leases: list[GrantedLease] = []

        def push(push: Push) -> None:
            leases.extend(push.leases)

        session = Session(Hello(name, frozenset({"type"}), frozenset(queues)), push, lambda: None)
        self.dispatcher.attach(session)
        self.dispatcher.grant_credits(session, room)
        self.machine.pass_ms(10)
        return session, leases

    def submit(self, queue: str, count: int) -> None:
        jobs = [NewJob(f"{queue}-{number}", 0) for number in range(count)]
        self.coordinator.call(Lane.SUBMIT, commands.Submit([Template("type", queue)], jobs), lambda _: None)
        self.machine.pass_ms(10)


def test_short_queue_is_shared_beside_a_long_one() -> None:
    """What waits elsewhere does not make a share larger: both workers of a queue get half of it."""
    shop = Shop()
    shop.submit("other", 900)
    _, first = shop.attach("first", 100, "queue")
    _, second = shop.attach("second", 100, "queue")
    shop.submit("queue", 10)
    assert (len(first), len(second)) == (5, 5)


def test_excess_is_forgotten_without_anybody_asking() -> None:
    """Jobs beyond what is retained go at once, however many they are and however quiet it is."""
    shop = Shop(LoopConfig(retain_jobs=1_000_000))
    for part in range(3):
        shop.submit(f"q{part}", 1_000)
    session, leases = shop.attach("worker", 3_000)
    shop.machine.pass_ms(100)
    rows = [ReportRow(lease.job_id, lease.token, DONE) for lease in leases]
    shop.dispatcher.report(session, 1, rows)
    shop.machine.pass_ms(100)
    assert len(shop.ledger.book.finished) == 3_000
    shop.coordinator._config = LoopConfig(retain_jobs=10)  # as after a restart with another setting
    shop.coordinator.wake()
    shop.machine.pass_ms(100)
    assert len(shop.ledger.book.finished) == 10


def test_observer_that_raises_stops_the_process() -> None:
    """An event that is applied and in no frame would be a state that no replay gives."""
    shop = Shop()

    class Broken:
        def applied(self, position: int, event: AnyEvent, ledger: Ledger) -> None:
            raise RuntimeError("a mistake")

        def durable(self, position: int) -> None: ...

        def bug(self, command: object, error: Exception) -> None: ...

    shop.coordinator.observers.append(Broken())
    shop.submit("queue", 1)
    assert not shop.coordinator.is_serving


def test_silent_worker_gets_no_job_after_a_quiet_minute() -> None:
    """Silence counts while nothing else happens, too."""
    shop = Shop()
    _, leases = shop.attach("worker", 1)
    shop.machine.pass_ms(60_000)
    shop.submit("queue", 1)
    assert leases == []
