"""The coordinator of one leadership of a shard, as the product makes it, with a check of every reply that it sends."""

from collections.abc import Callable

from holdfast.core import commands
from holdfast.core.commands import AnyCommand, Refusal
from holdfast.core.events import AnyEvent, Created
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.core.model import NewJob, Template
from holdfast.ledger.coordinator import CommandLane, Coordinator, CoordinatorPorts, Read
from holdfast.ledger.group_commit import Done
from holdfast.ledger.recovery import ignore_progress
from holdfast.ledger.sessions import SessionDispatcher
from holdfast.topologies.cluster.journal import ClusterJournal
from holdfast.topologies.cluster.store import ClusterStore
from holdfast_lab.simulation.process import SimulatedProcess
from holdfast_lab.simulation.server import SimulatedServer, loop_config, session_config
from holdfast_lab.simulation.shard_log import INBOX
from holdfast_lab.simulation.swarm import SwarmSettings
from holdfast_lab.simulation.violation import require

#: Refusals that are not based on the state.
_STATELESS = frozenset({"NOT_LEADER", "STOPPING", "OVERLOADED", "OUTCOME_UNKNOWN"})


class CheckedCoordinator(Coordinator):
    """Checks replies that no frame supports: no other epoch may lead when they leave."""

    #: Returns the epoch that leads in the database now.
    leading_epoch: Callable[[], int]
    epoch: int

    def call(self, lane: CommandLane, command: AnyCommand, done: Done) -> None:
        """Same as the base class, and checks the reply."""
        super().call(lane, command, self._checked(done))

    def read(self, lane: CommandLane, query: Read, done: Done) -> None:
        """Same as the base class, and checks the reply."""
        super().read(lane, query, self._checked(done))

    def hear(self, command: AnyCommand, done: Done) -> None:
        """Same as the base class, and checks the reply."""
        super().hear(command, self._checked(done))

    def _checked(self, done: Done) -> Done:
        def told(reply: object) -> None:
            # Within a turn, a reply leaves at the instant at which the state was read.
            if self._is_busy and not (isinstance(reply, Refusal) and reply.reason in _STATELESS):
                leading = self.leading_epoch()
                require(leading == self.epoch, f"epoch {self.epoch} answered while epoch {leading} was leading")
            done(reply)

        return told


class ClusterServer(SimulatedServer):
    """One leadership of one shard."""

    def __init__(
        self,
        shard: int,
        process: SimulatedProcess,
        ports: CoordinatorPorts,
        store: ClusterStore,
        settings: SwarmSettings,
        mint: Callable[[], str],
        leading_epoch: Callable[[], int],
    ) -> None:
        """The store is open."""
        self.shard = shard
        self.process = process
        self.mint = mint
        self.store = store
        journal = store.journal
        assert isinstance(journal, ClusterJournal)
        self.journal = journal
        self.epoch = journal.epoch
        coordinator = CheckedCoordinator(store.ledger, journal, ports, loop_config(settings))
        coordinator.leading_epoch, coordinator.epoch = leading_epoch, journal.epoch
        self.coordinator = coordinator
        store.attach(coordinator)
        self.dispatcher = SessionDispatcher(coordinator, session_config(settings))
        coordinator.observers.append(_InboxWatch(journal))
        #: Rows of the inbox that are being moved.
        self._moving: set[int] = set()

    def move(self, rows: list[int]) -> None:
        """Submits rows of the inbox as jobs."""
        new = [row for row in rows if row not in self._moving]
        if new and self.coordinator.is_serving:
            self._moving.update(new)
            jobs = [NewJob(self.mint(), 0, INBOX + b"%d" % row) for row in new]
            submit = commands.Submit([Template(type="type-0", queue="queue-0")], jobs)
            self.coordinator.call(CommandLane.SUBMIT, submit, lambda reply: self._on_moved(new, reply))

    def _on_moved(self, rows: list[int], reply: object) -> None:
        if isinstance(reply, Refusal):
            self._moving.difference_update(rows)


class _InboxWatch:
    """Attaches the rows of the inbox to the frame with their jobs."""

    def __init__(self, journal: ClusterJournal) -> None:
        self._journal = journal

    def applied(self, position: int, event: AnyEvent, ledger: Ledger) -> None:
        """Finds jobs from the inbox."""
        del ledger
        if isinstance(event, Created):
            found = [job.payload for job in event.jobs if job.payload.startswith(INBOX)]
            if found:
                self._journal.attach_inbox(position, [int(payload.removeprefix(INBOX)) for payload in found])

    def durable(self, position: int) -> None:
        """Does nothing."""

    def bug(self, command: object, error: Exception) -> None:
        """Fails the run."""
        raise AssertionError(f"the command {command} failed") from error


def ledger_config(settings: SwarmSettings) -> LedgerConfig:
    """Returns the configuration of the ledgers of a shard."""
    return LedgerConfig(aging_ms=settings.aging_ms)


def open_store(store: ClusterStore, settings: SwarmSettings) -> int:
    """Opens a store; runs on a thread."""
    store.open(ledger_config(settings), 0, ignore_progress)
    return 0
