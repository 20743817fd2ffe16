"""Holdfast with `--topology pipeline` on PostgreSQL, through its SDK and gateway."""

import asyncio
import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

import uvloop

from holdfast import __version__
from holdfast_lab.measure.processes import child, module, ready_line
from holdfast_lab.measure.timing import in_lanes
from holdfast_lab.peers import trial_environment
from holdfast_lab.peers.stores import POSTGRES
from holdfast_lab.peers.system import BATCHES, CALLERS, SystemDescription, batches
from holdfast_lab.peers.work import ARGUMENT

if TYPE_CHECKING:
    from types import ModuleType

_APP = "holdfast_lab.peers.tasks.holdfast_app"
_SLOTS = 5


class HoldfastPipeline:
    """All roles of the topology; its workers know the job if the trial has workers."""

    about = SystemDescription(
        title="Holdfast, pipeline",
        version=__version__,
        settings=f"`holdfast up --topology pipeline --slots {_SLOTS}` with its three workers, coroutines, bulk by "
        f"`asubmit_many`, {BATCHES} batches of 500 at a time, `Job.aresult()`",
        durability=POSTGRES.durability,
        after_a_kill="handed to another worker when its lease expires",
        is_ours=True,
        chunk=4_000,
    )

    def __init__(self) -> None:
        self._stack = ExitStack()
        os.environ[trial_environment.HOLDFAST] = self._start()
        from holdfast_lab.peers.tasks import holdfast_app  # noqa: PLC0415 - it reads the environment on import

        self._jobs: ModuleType = holdfast_app
        self._runner = self._stack.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
        self.count_done()  # connects

    def _start(self) -> str:
        """Start all processes; returns the URL of the gateway."""
        folder = trial_environment.folder()
        options = ["--port", "0", "--http-port", "0", "--slots", str(_SLOTS), "--log-level", "error"]
        if trial_environment.workers():
            options += ["--app", f"{_APP}:app"]
        command = module("holdfast", "up", "--topology", "pipeline", "--data", str(folder / "data"), *options)
        log = self._stack.enter_context((folder / "pipeline.log").open("wb"))
        database = {"HOLDFAST_DATABASE": trial_environment.store_address()}
        process = self._stack.enter_context(child(command, environment=database, errors=log))
        return f"holdfast://{ready_line(process)['grpc']}"

    def worker_command(self) -> list[str]:
        return []

    def enqueue_many(self, count: int) -> None:
        calls = [self._jobs.nothing_async.asubmit_many([(ARGUMENT,)] * size) for size in batches(count)]
        self._runner.run(in_lanes(calls, BATCHES))

    def submit_each(self, count: int) -> None:
        self._runner.run(self._submit(count, 1))

    def submit_together(self, count: int) -> None:
        self._runner.run(self._submit(count, CALLERS))

    async def _submit(self, count: int, callers: int) -> None:
        await in_lanes([self._jobs.nothing_async.asubmit(ARGUMENT) for _ in range(count)], callers)

    def enqueue_pauses(self, indexes: range, seconds: float) -> None:
        self._runner.run(self._jobs.pause.asubmit_many([(index, seconds) for index in indexes]))

    def submit_and_wait(self) -> None:
        self._runner.run(self._submit_and_wait())

    async def _submit_and_wait(self) -> None:
        await (await self._jobs.nothing_async.asubmit(ARGUMENT)).aresult(timeout_s=60)

    def count_done(self) -> int:
        return self._states().get("DONE", 0)

    def count_kept(self) -> int:
        return sum(count for state, count in self._states().items() if state != "DONE")

    def _states(self) -> dict[str, int]:
        return dict(self._runner.run(self._jobs.app.astats()).states)

    def close(self) -> None:
        self._runner.run(self._jobs.app.aclose())
        self._stack.close()
