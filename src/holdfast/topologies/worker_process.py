"""One worker in this process, and what one beside a server is started with."""

import asyncio
import gc
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType

from holdfast.ports import WorkApi
from holdfast.process.child_command import child_command
from holdfast.process.kept_process import Role
from holdfast.process.ready_line import announce, few
from holdfast.process.signals import STOPS, on_stop
from holdfast.settings import Settings, addresses_of
from holdfast.topologies.embedded.fork_handlers import let_go_in_children
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
    """Works until TERM or INT; prints one line once jobs can be run. Returns the worker as it ended.

    What there is to `prepare` is done once somebody is reached, before that line; if it fails, so does this. Who wants
    to look at the worker meanwhile has `seen` it first; `more` stands in the line, too.
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
            # From here until the fresh process listens, a stop waits; one that has just come is heard first.
            signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
            await asyncio.sleep(0.01)
    return worker


async def _prepared(prepare: Prepare, worker: Worker, running: "asyncio.Task[None]") -> None:
    """Unless the worker ends first."""
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
    """What is loaded stays: looking through all of it after every few hundred objects that jobs make is waste."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


def _sentence(handlers: Mapping[str, Handler], config: WorkerConfig, where: str) -> str:
    types = few(handlers.keys() - BUILTIN.keys() or handlers)
    return f"{config.worker_id} is ready for {types}, {config.slots} at a time, from {where}; Ctrl-C stops it"


def worker_role(settings: Settings, target: str) -> Role:
    """The worker beside a server at this address, for a supervisor; it may be asked to leave for good."""
    command = [
        *child_command("holdfast", "worker", "--connect", target, "--slots", str(settings.slots)),
        *(["--worker-id", settings.worker_id] if settings.worker_id else []),
        *(["--app", settings.app, "--beside", settings.data] if settings.app else []),
        *("--log-level", settings.log_level, "--log-format", settings.log_format, "--lifeline", "--with-server"),
    ]
    return Role("worker", command, may_leave=True)
