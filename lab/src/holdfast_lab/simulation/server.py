"""The coordinator and gateway of one process run, as the product makes them."""

import random
from collections.abc import Callable

from holdfast.core.owner import mint as mint_uuids
from holdfast.ledger.coordinator import Coordinator, CoordinatorPorts, LoopConfig
from holdfast.ledger.job_api import LedgerJobs
from holdfast.ledger.log_clock import ClockMark, ClockTrust
from holdfast.ledger.recovery import RecoveredLedger
from holdfast.ledger.session_messages import LeaseTerms
from holdfast.ledger.sessions import SessionConfig, SessionDispatcher
from holdfast.ledger.tick_timer import TickTimer
from holdfast.ledger.work_api import LedgerWork
from holdfast.server.backend import Backend
from holdfast.server.unix_socket import SocketServer
from holdfast_lab.simulation.event_loop import SimulatedLoop
from holdfast_lab.simulation.process import SimulatedProcess
from holdfast_lab.simulation.scheduler import SimulatedScheduler
from holdfast_lab.simulation.storage import Witness, WitnessedJournal
from holdfast_lab.simulation.swarm import SwarmSettings


class SimulatedServer:
    """A coordinator that serves, and the sessions of its workers: what the actors use. `mint` makes ids of jobs."""

    process: SimulatedProcess
    coordinator: Coordinator
    dispatcher: SessionDispatcher
    mint: Callable[[], str]


class DirectoryServer(SimulatedServer):
    """The production objects of one process run over a directory."""

    def __init__(
        self,
        process: SimulatedProcess,
        clock: SimulatedScheduler,
        recovered: RecoveredLedger,
        witness: Witness,
        settings: SwarmSettings,
        mint: Callable[[], str],
        previous: ClockMark | None,
    ) -> None:
        """`mint` makes the ids of jobs from schedules; `previous` is the clock mark of the previous process."""
        self.process = process
        self.mint = mint
        self.journal = recovered.journal
        world = CoordinatorPorts(clock, process, process, process.fatal, previous)
        storage = WitnessedJournal(recovered.journal, witness)
        self.coordinator = Coordinator(recovered.ledger, storage, world, loop_config(settings))
        #: Its own random source: the gateway's draws do not change any other part of the run.
        rng = random.Random(f"server/{settings.seed}/{self.journal.epoch}")
        self.loop = SimulatedLoop.of(clock, process, "server", rng)
        with self.loop.running():
            self.work = LedgerWork(self.coordinator, session_config(settings))
            self.dispatcher = self.work.dispatcher
            jobs = LedgerJobs(self.coordinator, mint_ids=lambda count: mint_uuids(rng.randbytes, count))
            backend = Backend(jobs=jobs, work=self.work)
            self.sockets = SocketServer(backend, LeaseTerms(settings.lease_ms, settings.beat_ms, self.journal.epoch))
        TickTimer(self.coordinator, mint)


def session_config(settings: SwarmSettings) -> SessionConfig:
    """Returns the lease and session settings of this run."""
    silent_ms = max(4 * settings.beat_ms, settings.lease_ms, 400)
    return SessionConfig(settings.lease_ms, silent_ms, settings.reconnect_grace_ms)


def loop_config(settings: SwarmSettings) -> LoopConfig:
    """Returns the sizes of the loop in this run."""
    return LoopConfig(
        frame_bytes=settings.frame_bytes,
        spare_bytes=settings.spare_bytes,
        outcome_bytes=settings.outcome_bytes,
        waiting_max=settings.waiting_max,
        turn_steps=settings.turn_steps,
        retain_ms=settings.retain_ms,
        retain_jobs=settings.retain_jobs,
        retain_bytes=settings.retain_bytes,
        retain_failed_ms=settings.retain_failed_ms,
        trust=ClockTrust(doubt_ms=settings.doubt_ms),
    )
