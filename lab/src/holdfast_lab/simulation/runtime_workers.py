"""Workers that run the product's own runtime and session, on simulated connections."""

import asyncio
import random
from pathlib import Path

from holdfast.client.endpoints import UnixEndpoint
from holdfast.client.wire_work import WireWork
from holdfast.core.lifecycle import DONE, FAILED
from holdfast.errors import HoldfastError
from holdfast.ports import Assignment
from holdfast.worker.config import WorkerConfig
from holdfast.worker.context import CURRENT
from holdfast.worker.handlers import AttemptFailedError, Handler
from holdfast.worker.runtime import Worker
from holdfast_lab.simulation.connections import Connector, Program
from holdfast_lab.simulation.event_loop import SimulatedLoop
from holdfast_lab.simulation.jobs import POISON, all_routes, draw_end
from holdfast_lab.simulation.response_checks import ResponseChecks
from holdfast_lab.simulation.runtime_rules import Attempt, RuntimeRules
from holdfast_lab.simulation.swarm import SwarmSettings
from holdfast_lab.simulation.violation import Violation

#: Any path whose directory exists: the simulated loop connects to the simulated server.
SOCKET = Path("/simulated.sock")
_US = 1_000_000
_SERVES_US = 6_000_000
_DEAD_US = (2_000, 2_000_000)
_DRAIN_MS = 1_500
_OUTPUT_BYTES_MAX = 40
_MODERATE, _OFTEN = 0.3, 0.8


class RuntimeWorker:
    """One worker id, over all runs of its process."""

    def __init__(
        self,
        name: str,
        connector: Connector,
        response_checks: ResponseChecks,
        rules: RuntimeRules,
        settings: SwarmSettings,
        *,
        knows_all: bool,
    ) -> None:
        self.name = name
        self._connector = connector
        self._response_checks = response_checks
        self._rules = rules
        self._settings = settings
        self._rng = random.Random(f"{name}/{settings.seed}")
        routes = sorted(all_routes(settings))
        self._routes = routes if knows_all else self._rng.sample(routes, self._rng.randint(1, len(routes)))
        self._life = 0
        self._worker: Worker | None = None
        self.program: Program | None = None
        self._start_later(self._rng.randint(0, 20_000))

    def _start_later(self, delay_us: int) -> None:
        self._connector.clock.after(delay_us, f"{self.name} starts", self._start)

    def _start(self) -> None:
        self._life += 1
        self.program = program = self._connector.program(self.name)
        program.loop.visit(lambda: program.loop.create_task(self._serve(program)))

    async def _serve(self, program: Program) -> None:
        config = WorkerConfig(
            worker_id=self.name,
            slots=self._settings.slots,
            drain_ms=_DRAIN_MS,
            child_memory_bytes=0,
        )
        worker = self._worker = Worker(
            WireWork(UnixEndpoint(SOCKET)), dict.fromkeys(self._routes, Handler(self._run)), config
        )
        asyncio.get_running_loop().call_later(self._rng.expovariate(1) * _SERVES_US / _US, self._redeploy, worker)
        with program.loop.judging():
            try:
                await worker.run()
            except HoldfastError as error:
                raise Violation(f"{self.name} ended: {error!r}") from error
        self._response_checks.count("runtime drain")
        self._connector.clock.after(0, f"{self.name} has ended", lambda: self._end(program))

    def _redeploy(self, worker: Worker) -> None:
        """Sometimes stops a worker, and sometimes twice: it returns its jobs.

        Not at the end of a run, where that would repair too much.
        """
        if not self._connector.is_healed:
            worker.stop()
            if self._settings.faults and self._rng.random() < _MODERATE:
                worker.stop()

    def _end(self, program: Program) -> None:
        if self.program is program:
            self.die()

    # -- jobs

    @property
    def _loop(self) -> SimulatedLoop:
        assert self.program is not None
        return self.program.loop

    async def _run(self, assignment: Assignment) -> bytes:
        with self._loop.judging():
            attempt = self._rules.begun(self.name, assignment)
        if assignment.payload.startswith(POISON):
            self._response_checks.count("poisoned")
            self._connector.clock.after(0, f"{self.name} is poisoned", self.die)
        rng = self._rng
        run_us, end = rng.randint(0, 2_000 * self._settings.run_ms), draw_end(rng)
        if rng.random() < _MODERATE and (context := CURRENT.get()) is not None:
            context.progress(rng.random(), "on its way")
        await asyncio.sleep(run_us / _US)
        return self._ended(attempt, DONE if end == DONE else FAILED)

    def _ended(self, attempt: Attempt, end: int) -> bytes:
        output = self._rng.randbytes(self._rng.randint(0, _OUTPUT_BYTES_MAX)) if end == DONE else b""
        attempt.end = (end, output)
        if end == FAILED:
            raise AttemptFailedError("BROKEN", is_retryable=self._rng.random() < _OFTEN)
        return output

    # -- faults

    def die(self) -> None:
        """Ends the process (kill -9) with its state; it restarts under the same name."""
        if self.program is not None:
            self.program.kill()
            self.program = self._worker = None
            self._rules.died(self.name)
            self._start_later(self._rng.randint(*_DEAD_US))

    def pause(self, for_us: int) -> None:
        """SIGSTOP, then SIGCONT."""
        if self.program is not None:
            self.program.process.stall(for_us)

    def heal(self) -> None:
        """Ends the pause."""
        if self.program is not None:
            self.program.process.stalled_until_us = 0

    @property
    def is_idle(self) -> bool:
        """Whether it holds neither a job nor an outcome."""
        return self._worker is None or self._worker._is_idle  # noqa: SLF001 - the condition of its drain
