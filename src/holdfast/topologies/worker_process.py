"""One worker in this process, and the command of a worker beside a server."""

import asyncio
import gc
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType

from holdfast.ports import WorkApi
from holdfast.process.child_command import child_command
from holdfast.process.ready_line import announce, few
from holdfast.process.signals import STOPS, on_stop
from holdfast.process.supervised_process import ProcessSpec
from holdfast.settings import Settings, addresses_of
from holdfast.topologies.fork_handlers import let_go_in_children
from holdfast.worker.builtin import BUILTIN
from holdfast.worker.config import WorkerConfig
from holdfast.worker.handlers import Handler
from holdfast.worker.runtime import Worker

Prepare = Callable[[], Awaitable[object]]


async def run_worker(
    api: WorkApi,
    handlers: Mapping[str, Handler],
    config: WorkerConfig,
    where: str,
    prepare: Prepare | None = None,
    *,
    seen: Callable[[Worker], None] = lambda _: None,
    more: Mapping[str, str] = MappingProxyType({}),
) -> Worker:
    """Runs a worker until SIGTERM or SIGINT; prints the ready line once it is attached. Returns the ended worker.

    `prepare` is called once the worker is attached, before the ready line; its error ends the worker and is raised.
    `seen` receives the worker before it starts; `more` is added to the ready line.
    """
    worker = Worker(api, handlers, config)
    seen(worker)
    let_go_in_children(addresses_of(where))
    exempt_what_is_loaded()
    with on_stop(worker.stop):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
        running = asyncio.create_task(worker.run())
        attached = asyncio.create_task(worker.attached.wait())
        await asyncio.wait([running, attached], return_when=asyncio.FIRST_COMPLETED)
        attached.cancel()
        if prepare is not None and not running.done():
            await _prepared(prepare, worker, running)
        if not running.done():
            line = {"event": "ready", "service": "worker", "worker_id": config.worker_id, "grpc": where}
            announce({**line, **more, "pid": os.getpid()}, _sentence(handlers, config, where))
        await running
        if worker.is_recycling:
            # Stop signals are blocked until the new process handles them. One that has just arrived is handled here.
            signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
            await asyncio.sleep(0.01)
    return worker


async def _prepared(prepare: Prepare, worker: Worker, running: "asyncio.Task[None]") -> None:
    """Calls `prepare`, unless the worker ends first; stops the worker if it fails."""
    preparing = asyncio.ensure_future(prepare())
    try:
        await asyncio.wait([preparing, running], return_when=asyncio.FIRST_COMPLETED)
        if preparing.done():
            await preparing
    except BaseException:
        worker.stop()
        await running
        raise
    finally:
        preparing.cancel()


def exempt_what_is_loaded() -> None:
    """Exempts the loaded objects from garbage collection, and collects less often: scanning them is wasted time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


def _sentence(handlers: Mapping[str, Handler], config: WorkerConfig, where: str) -> str:
    types = few(handlers.keys() - BUILTIN.keys() or handlers)
    return f"{config.worker_id} is ready for {types}, {config.slots} at a time, from {where}; Ctrl-C stops it"


def worker_role(settings: Settings, target: str) -> ProcessSpec:
    """Returns the role of a worker beside a server, for a supervisor; the worker may leave for good."""
    command = [
        *child_command("holdfast", "worker", "--connect", target, "--slots", str(settings.slots)),
        *(["--worker-id", settings.worker_id] if settings.worker_id else []),
        *(["--app", settings.app, "--beside", settings.data] if settings.app else []),
        *("--log-level", settings.log_level, "--log-format", settings.log_format, "--lifeline", "--with-server"),
    ]
    return ProcessSpec("worker", command, may_leave=True)
