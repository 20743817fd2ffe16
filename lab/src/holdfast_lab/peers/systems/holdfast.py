"""Holdfast itself, through its public SDK: in a directory, and with a server."""

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

from holdfast import __version__
from holdfast_lab.measure.processes import holdfast_server, module
from holdfast_lab.peers import trial_environment
from holdfast_lab.peers.system import SystemDescription

if TYPE_CHECKING:
    from types import ModuleType

_APP = "holdfast_lab.peers.tasks.holdfast_app"
_SETTINGS = "8 slots (default), threads, bulk by `submit_many`, `Job.result()`"
_DURABILITY = "yes: every job is synced before its submit returns, always"
_AFTER_A_KILL = "handed to another worker as soon as the connection of the killed one breaks"


class HoldfastDirectory:
    """Jobs in a directory that the producer's process serves to the workers over a Unix socket."""

    about = SystemDescription(
        title="Holdfast, directory",
        version=__version__,
        settings=f'`Holdfast("./jobs")`, the producer serves it; `holdfast worker -A`, {_SETTINGS}',
        durability=_DURABILITY,
        after_a_kill=_AFTER_A_KILL,
        is_ours=True,
    )

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._prepare()
        from holdfast_lab.peers.tasks import holdfast_app  # noqa: PLC0415 - it reads the environment on import

        self._jobs: ModuleType = holdfast_app
        holdfast_app.app.stats()

    def _prepare(self) -> None:
        """Start nothing: the first process that opens the directory serves it."""

    def worker_command(self) -> list[str]:
        return module("holdfast", "worker", "-A", f"{_APP}:app", "--log-level", "warning")

    def enqueue_many(self, count: int) -> None:
        self._jobs.nothing.submit_many([()] * count)

    def submit_each(self, count: int) -> None:
        for _ in range(count):
            self._jobs.nothing.submit()

    def enqueue_pauses(self, indexes: range, seconds: float) -> None:
        self._jobs.pause.submit_many([(index, seconds) for index in indexes])

    def submit_and_wait(self) -> None:
        self._jobs.nothing.submit().result(timeout_s=60)

    def count_done(self) -> int:
        return int(self._jobs.app.stats().states.get("DONE", 0))

    def count_kept(self) -> int:
        states = self._jobs.app.stats().states
        return sum(count for state, count in states.items() if state != "DONE")

    def close(self) -> None:
        self._jobs.app.close()
        self._stack.close()


class HoldfastServer(HoldfastDirectory):
    """Jobs on a server, a process of its own."""

    about = SystemDescription(
        title="Holdfast, server",
        version=__version__,
        settings=f"`holdfast server`; `holdfast worker -A`, {_SETTINGS}",
        durability=_DURABILITY,
        after_a_kill=_AFTER_A_KILL,
        is_ours=True,
    )

    def _prepare(self) -> None:
        server = self._stack.enter_context(holdfast_server(folder=trial_environment.folder()))
        os.environ[trial_environment.HOLDFAST] = server.url
