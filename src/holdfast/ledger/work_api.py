"""Work from a ledger: sessions of streaming workers, and calls of workers that poll."""

from collections.abc import Iterable, Sequence
from typing import cast

from holdfast.core import commands
from holdfast.core.commands import GrantedLease, Heard, ReportReply, ReportRow
from holdfast.ledger.coordinator import CommandLane, Coordinator
from holdfast.ledger.coordinator_calls import CoordinatorCaller
from holdfast.ledger.sessions import SessionConfig, SessionDispatcher

#: A grant younger than this may be in flight to a worker whose heartbeat does not list it.
FETCH_GRACE_MS = 3_000


class LedgerWork:
    """Grants leases of one coordinator."""

    def __init__(self, coordinator: Coordinator, config: SessionConfig) -> None:
        self._coordinator = coordinator
        self._caller = CoordinatorCaller(coordinator)
        self._config = config
        self.dispatcher = SessionDispatcher(coordinator, config)

    async def fetch(self, worker: str, routes: frozenset[str]) -> GrantedLease | None:
        """Returns one lease, if there is a job. If the answer is lost, the worker's next heartbeat reveals it."""
        self._hear(worker)
        command = commands.GrantLeases(worker, routes, frozenset(), 1, self._config.lease_ms)
        granted = cast("list[GrantedLease]", await self._caller.call(CommandLane.WORK, command))
        return granted[0] if granted else None

    async def heartbeat(self, worker: str, capacity: int, running: Iterable[tuple[str, int]] | None) -> list[str]:
        """Extends the leases of running jobs; leases of jobs that do not run go back. Returns ids of jobs to stop."""
        self.dispatcher.registry.hear(worker, self._served_ms()).slots = capacity
        held = None if running is None else frozenset(self._token(*job) for job in running)
        command = commands.Extend(worker, self._config.lease_ms, held, FETCH_GRACE_MS)
        cancels = self.dispatcher.durable_cancels(cast("Heard", await self._caller.hear(command)))
        leases = self._coordinator.ledger.state.leases
        return [leases[token].job.id for token in cancels if token in leases]

    async def report(self, worker: str, rows: Sequence[ReportRow]) -> list[str]:
        """Records outcomes; returns for each row an empty string, or the reason of its refusal."""
        self._hear(worker)
        reply = cast("ReportReply", await self._caller.call(CommandLane.WORK, commands.Report(worker, list(rows))))
        return reply.refused

    def _token(self, job_id: str, token: int) -> int:
        """Returns the token; a worker of the frozen contract sends none, which means the job's current lease."""
        job = self._coordinator.ledger.job(job_id)
        return token or (job.token if job is not None else 0)

    def _hear(self, worker: str) -> None:
        self.dispatcher.registry.hear(worker, self._served_ms())

    def _served_ms(self) -> int:
        return self._coordinator.time.now().served_ms
