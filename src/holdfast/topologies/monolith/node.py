"""`holdfast node`: one of several equal nodes, a ledger server with slots inside."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec

from holdfast.core.owner import Ownership
from holdfast.ledger.local_work import LocalWork
from holdfast.observe.log_setup import ByteStream
from holdfast.process.garbage_collector import tune_collector
from holdfast.process.ready_line import announce
from holdfast.process.signals import on_stop
from holdfast.server.ledger_server import LedgerServer
from holdfast.server.startup import StartStoppedError
from holdfast.settings import Settings
from holdfast.topologies.monolith.node_worker import NodeWorker
from holdfast.worker.start_report import BackendReads, report_start

Program = Callable[[Settings, ByteStream], Coroutine[Any, Any, None]]


def program(ownership: Ownership, *, has_slots: bool, socket: Path | None = None, is_early: bool = False) -> Program:
    """Returns the program of one node; without slots, its jobs wait for workers that connect.

    If it is early, it prints a line when it listens, before its ready line.
    """

    async def serve(settings: Settings, log_stream: ByteStream) -> None:
        slots = NodeWorker(settings, ownership.index) if has_slots else None
        server = LedgerServer(
            settings,
            log_stream=log_stream,
            ownership=ownership,
            socket=socket,
            listening=(lambda: _tell_listening(server, ownership)) if is_early else None,
        )
        await _serve(server, settings, ownership, slots)

    return serve


async def _serve(server: LedgerServer, settings: Settings, ownership: Ownership, slots: NodeWorker | None) -> None:
    """Serves until TERM or INT; a second signal does not wait for running jobs."""
    stopping = asyncio.Event()

    def stop() -> None:
        stopping.set()
        server.give_up()
        if slots is not None:
            slots.stop()

    with on_stop(stop), contextlib.suppress(StartStoppedError):
        await server.start()
        tune_collector()
        work = await _fill(server, slots)
        if slots is not None:
            await _prepare(server, ownership, slots)
        if not stopping.is_set():
            _announce(server, settings, ownership)
        elif slots is not None:
            slots.stop()  # the signal came before the slots had started
        await stopping.wait()
        await server.drain()
        if slots is not None:
            await slots.wait()
        work.close()
        await server.stop()


async def _fill(server: LedgerServer, slots: NodeWorker | None) -> LocalWork:
    """Starts the slots; returns once they take jobs."""
    work = LocalWork(server.work.dispatcher, server.terms)
    if slots is not None:
        slots.start(work)
        await slots.ready.wait()
        if slots.error is not None:
            await server.stop()
            raise slots.error
    return work


async def _prepare(server: LedgerServer, ownership: Ownership, slots: NodeWorker) -> None:
    """Sets the schedules of the app that this node owns, and logs warnings about jobs that no worker would run."""
    admin, schedules = server.backend.admin, server.backend.schedules
    assert admin is not None, "a ledger has administration"
    assert schedules is not None, "a ledger has schedules"
    for spec in slots.declared.schedules:
        if ownership.owns(spec.name):
            await schedules.set(spec)
    await report_start(slots.declared, BackendReads(admin.queues, admin.workers, schedules.all))


def _tell_listening(server: LedgerServer, ownership: Ownership) -> None:
    """Tells the supervisor that this node has locked its directory, and where it will be reached."""
    line = {"event": "listening", **server.addresses, "socket": str(server.socket_path or ""), "pid": os.getpid()}
    announce(line, f"{ownership} listens at {server.address}, and is not ready yet")


def _announce(server: LedgerServer, settings: Settings, ownership: Ownership) -> None:
    data = settings.data if settings.is_in_memory else str(Path(settings.data).absolute())
    socket = {"socket": server.socket} if server.socket else {}
    who = msgspec.structs.asdict(ownership)
    line = {"event": "ready", **server.addresses, "data": data, **socket, "pid": os.getpid(), **who}
    announce(line, f"{ownership} is ready at {server.address} with the jobs in {data}; Ctrl-C stops it")
