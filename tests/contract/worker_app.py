"""The app of the contract's workers, with job types beyond the built-in ones."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

from holdfast.ports import Assignment
from holdfast.worker.handlers import Handler, Mode

#: Runs until it is canceled.
HOLD = "contract.hold"
#: Creates the file that its label `started` names, runs until it is canceled, and then succeeds.
FINISH_ANYWAY = "contract.finish_anyway"


async def _hold(_: Assignment) -> bytes:
    await asyncio.Event().wait()
    return b""


async def _finish_anyway(assignment: Assignment) -> bytes:
    Path(assignment.labels["started"]).touch()  # noqa: ASYNC240 - one system call
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    return b"finished"


_COROUTINES: dict[str, Callable[[Assignment], Awaitable[bytes]]] = {HOLD: _hold, FINISH_ANYWAY: _finish_anyway}


class WorkerApp:
    """The object for a worker's `--app`."""

    def handlers(self) -> dict[str, Handler]:
        return {name: Handler(run, Mode.ASYNC) for name, run in _COROUTINES.items()}


app = WorkerApp()
