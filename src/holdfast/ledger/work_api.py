"""The ledger's side of work: sessions of streaming workers, and calls of those that poll."""

from collections.abc import Iterable, Sequence
from typing import cast

from holdfast.core import commands
from holdfast.core.commands import GrantedLease, Heard, ReportReply, ReportRow
from holdfast.ledger.coordinator import CommandLane, Coordinator
from holdfast.ledger.coordinator_calls import CoordinatorCaller
from holdfast.ledger.sessions import SessionConfig, SessionDispatcher

#: A grant younger than this may still be on its way to a worker whose heartbeat does not list it.
FETCH_GRACE_MS = 3_000


class LedgerWork:
    """Hands out leases over one coordinator."""

    def __init__(self, coordinator: Coordinator, config: SessionConfig) -> None:
        self._coordinator = coordinator
        self._caller = CoordinatorCaller(coordinator)
        self._config = config
        self.dispatcher = SessionDispatcher(coordinator, config)

    async def fetch(self, worker: str, routes: frozenset[str]) -> GrantedLease | None:
        """One lease, or nothing for now. If the answer is lost, the worker's next heartbeat shows it."""
        self._hear(worker)
        command = commands.GrantLeases(worker, routes, frozenset(), 1, self._config.lease_ms)
        granted = cast("list[GrantedLease]", await self._caller.call(CommandLane.WORK, command))
        return granted[0] if granted else None

    async def heartbeat(self, worker: str, capacity: int, running: Iterable[tuple[str, int]] | None) -> list[str]:
        """Extends what the worker runs; what it was given and does not run goes back. Ids of jobs to stop."""
        self.dispatcher.registry.hear(worker, self._served_ms()).slots = capacity
        held = None if running is None else frozenset(self._token(*job) for job in running)
        command = commands.Extend(worker, self._config.lease_ms, held, FETCH_GRACE_MS)
        cancels = self.dispatcher.durable_cancels(cast("Heard", await self._caller.hear(command)))
        leases = self._coordinator.ledger.book.leases
        return [leases[token].job.id for token in cancels if token in leases]

    async def report(self, worker: str, rows: Sequence[ReportRow]) -> list[str]:
        """For each row an empty string if it counts, or why it does not."""
        self._hear(worker)
        reply = cast("ReportReply", await self._caller.call(CommandLane.WORK, commands.Report(worker, list(rows))))
        return reply.refused

    def _token(self, job_id: str, token: int) -> int:
        """A worker of the bare contract knows no tokens: it means the job's current lease, if that is its own."""
        job = self._coordinator.ledger.job(job_id)
        return token or (job.token if job is not None else 0)

    def _hear(self, worker: str) -> None:
        self.dispatcher.registry.hear(worker, self._served_ms())

    def _served_ms(self) -> int:
        return self._coordinator.time.now().served_ms
