"""One worker in this process, and one as a child that is kept alive."""

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import sys
from collections.abc import Mapping

from holdfast.backends.ports import WorkApi
from holdfast.errors import ExitCode
from holdfast.logs import get_logger
from holdfast.topology.announcing import announce, few
from holdfast.topology.signals import STOPS, on_stop
from holdfast.worker.builtin import BUILTIN
from holdfast.worker.config import WorkerConfig
from holdfast.worker.handlers import Handler
from holdfast.worker.runtime import Worker

_RESTART_S_MAX = 1.0
_CHUNK_BYTES = 65_536


async def run_worker(api: WorkApi, handlers: Mapping[str, Handler], config: WorkerConfig, where: str) -> Worker:
    """Works until TERM or INT; prints one line once jobs can be run. Returns the worker as it ended."""
    worker = Worker(api, handlers, config)
    _exempt_what_is_loaded()
    with on_stop(worker.stop):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
        running = asyncio.create_task(worker.run())
        attached = asyncio.create_task(worker.attached.wait())
        await asyncio.wait([running, attached], return_when=asyncio.FIRST_COMPLETED)
        attached.cancel()
        if not running.done():
            line = {"event": "ready", "service": "worker", "worker_id": config.worker_id, "grpc": where}
            announce({**line, "pid": os.getpid()}, _sentence(handlers, config, where))
        await running
        if worker.is_recycling:
            # From here until the fresh process listens, a stop waits; one that has just come is heard first.
            signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
            await asyncio.sleep(0.01)
    return worker


def _exempt_what_is_loaded() -> None:
    """What is loaded stays: looking through all of it after every few hundred objects that jobs make is waste."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


def _sentence(handlers: Mapping[str, Handler], config: WorkerConfig, where: str) -> str:
    types = few(handlers.keys() - BUILTIN.keys() or handlers)
    return f"{config.worker_id} is ready for {types}, {config.slots} at a time, from {where}; Ctrl-C stops it"


class WorkerChild:
    """A worker process that is started again when it dies, and ends with its parent."""

    def __init__(
        self, *, slots: int, worker_id: str, log_level: str, log_format: str, app: str = "", beside: str = ""
    ) -> None:
        """`beside` is the directory of the server at its side."""
        self._command = [
            *(sys.executable, "-m", "holdfast", "worker", "--slots", str(slots)),
            *(["--worker-id", worker_id] if worker_id else []),
            *(["--app", app, "--beside", beside] if app else []),
            *("--log-level", log_level, "--log-format", log_format, "--lifeline"),
        ]
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False
        self.ready = asyncio.Event()
        #: It said that it cannot work as it was told, and would say so again.
        self.refused = asyncio.Event()

    def start(self, target: str) -> None:
        """Starts the child, and the task that keeps it, for the server at this address."""
        self._task = asyncio.create_task(self._keep([*self._command, "--connect", target]))

    def stop(self) -> None:
        """Passes a stop on: the first one drains, the second one ends at once."""
        self._is_stopping = True
        self._pass_on()

    def _pass_on(self) -> None:
        if self._is_stopping and self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)

    async def wait(self) -> None:
        """Until the child has ended after a stop."""
        if self._task is not None:
            await self._task

    async def _keep(self, command: list[str]) -> None:
        delay_s = 0.1
        status: int | None
        while not self._has_stopped():
            try:
                status = await self._live(command)
            except OSError as error:  # no process to be had just now
                status = error.errno
            if self._has_stopped():
                return
            if status == 0:
                get_logger().info("worker_left", message="somebody asked it to drain; it is not replaced")
                return
            if status == ExitCode.USAGE and not self.ready.is_set():
                self.refused.set()
                return
            get_logger().warning("worker_died", status=status, message="starting another")
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, _RESTART_S_MAX)

    def _has_stopped(self) -> bool:
        return self._is_stopping

    async def _live(self, command: list[str]) -> int:
        """One life of the child: its exit status."""
        # Its own session, so that a Ctrl-C at the terminal reaches it once, through its parent.
        self._process = await asyncio.create_subprocess_exec(
            *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self._pass_on()
        assert self._process.stdout is not None
        while await self._process.stdout.read(_CHUNK_BYTES):  # not by lines: jobs may print, and without an end
            self.ready.set()
        return await self._process.wait()
