"""The slots inside a node: a worker in the process of the ledger, on a thread and a loop of its own.

The worker ends with its node. So jobs that were running in a previous run of the node are certainly lost, and the
ledger requeues them at the next start without waiting for their leases to expire.
"""

import asyncio
import contextlib
import secrets
import threading
from collections.abc import Callable, Mapping

import uvloop

from holdfast.errors import HoldfastError
from holdfast.ledger.local_work import LocalWork
from holdfast.observe.logs import get_logger
from holdfast.settings import Settings
from holdfast.worker.app_loader import load_app
from holdfast.worker.builtin import BUILTIN
from holdfast.worker.config import WorkerConfig
from holdfast.worker.handlers import Handler
from holdfast.worker.runtime import Worker
from holdfast.worker.start_report import declared_by


class NodeWorker:
    """One worker on its own thread. Created before the ledger is opened, so that an invalid app is refused first."""

    def __init__(self, settings: Settings, index: int) -> None:
        self._handlers: Mapping[str, Handler] = BUILTIN
        app = load_app(settings.app) if settings.app else None
        if app is not None:
            self._handlers = {**BUILTIN, **app.handlers()}
        #: The declarations of the app; each schedule is set at the node that owns it.
        self.declared = declared_by(app, settings.app, self._handlers.keys())
        self._config = WorkerConfig(
            worker_id=f"{settings.worker_id or f'node-{index}'}-{secrets.token_hex(4)}",
            slots=settings.slots,
            app_path=settings.app,
        )
        self._thread = threading.Thread(target=self._run, name="holdfast-slots")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._worker: Worker | None = None
        self._home: asyncio.AbstractEventLoop
        self._work: LocalWork
        #: Set on the ledger's loop, when the worker takes jobs and when it has ended.
        self.ready = asyncio.Event()
        self.ended = asyncio.Event()
        self.error: BaseException | None = None

    def start(self, work: LocalWork) -> None:
        """Starts to take jobs; called on the ledger's loop."""
        self._home, self._work = asyncio.get_running_loop(), work
        self._thread.start()

    def stop(self) -> None:
        """The first call lets running jobs finish; the second call hands them back at once."""
        self._on_its_loop(lambda worker: worker.stop())

    async def wait(self) -> None:
        """Waits until the worker has ended after a stop."""
        if self._thread.ident is not None:
            await self.ended.wait()
            self._thread.join()

    def _on_its_loop(self, use: Callable[[Worker], None]) -> None:
        loop, worker = self._loop, self._worker
        if loop is not None and worker is not None:
            with contextlib.suppress(RuntimeError):  # the loop has just ended
                loop.call_soon_threadsafe(use, worker)

    # -- on its own thread

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._live())
        except HoldfastError as error:
            self.error = error
            get_logger().error("slots_ended", message=error.message)
        finally:
            with contextlib.suppress(RuntimeError):  # the node has ended first
                self._home.call_soon_threadsafe(self.ended.set)

    async def _live(self) -> None:
        worker = Worker(self._work, self._handlers, self._config)
        self._loop, self._worker = asyncio.get_running_loop(), worker
        running = asyncio.create_task(worker.run())
        attached = asyncio.create_task(worker.attached.wait())
        await asyncio.wait([running, attached], return_when=asyncio.FIRST_COMPLETED)
        attached.cancel()
        self._home.call_soon_threadsafe(self.ready.set)
        await running
