"""The progress of a server's start, and the replies to clients until it is over.

Servers that store jobs recover them; a gateway waits for the processes that do. The recovery thread writes the
progress, and the event loop's thread reads it. They share one tuple, which is replaced as a whole.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import msgspec

from holdfast.errors import UnavailableError

if TYPE_CHECKING:
    from holdfast.ledger.recovery import Progress

T = TypeVar("T")

_STAGES = {
    "": "opening the journal",
    "snapshot": "reading the snapshot",
    "journal": "replaying the journal",
    "processes": "waiting for the processes that store the jobs",
}


class StartStoppedError(Exception):
    """The start was stopped; no job was changed."""


class Startup:
    """The progress of one start."""

    def __init__(self) -> None:
        self._told = ("", 0, 0)
        self._is_stopped = False
        #: Whether the backend answers calls now.
        self.is_over = False
        self._begun = asyncio.Event()
        self._tell_begun: Callable[[], object] = _soon(self._begun.set)

    def tell(self, stage: str, done: int, total: int) -> None:
        """Stores the progress of a stage, in the recovery thread. Raises `StartStoppedError` to end the recovery."""
        if self._is_stopped:
            raise StartStoppedError
        if not self._told[0]:
            self._tell_begun()
        self._told = (stage, done, total)

    async def begun(self) -> None:
        """Waits for the first progress of the recovery: then this process has locked the directory."""
        await self._begun.wait()

    def stop(self) -> None:
        """Ends the recovery at its next progress."""
        self._is_stopped = True

    @property
    def percent(self) -> int:
        """The percentage of the current stage that is done."""
        _, done, total = self._told
        return min(100, 100 * done // total) if total > 0 else 0

    @property
    def document(self) -> bytes:
        """The response to a probe."""
        stage, done, total = self._told
        progress = {"stage": stage or "open", "done": done, "total": total, "percent": self.percent}
        return msgspec.json.encode({"state": "starting", "progress": progress}) + b"\n"

    def error(self) -> UnavailableError:
        """Returns the error for every call."""
        return UnavailableError(
            f"the server is starting: {_STAGES[self._told[0]]}, {self.percent} % done; try again in a moment",
            reason="SERVER_STARTING",
        )


async def recover_behind_ports(
    startup: Startup,
    recover: "Callable[[Progress], T]",
    *,
    open_ports: Callable[[], Awaitable[None]],
    close_ports: Callable[[], Awaitable[None]],
    discard: Callable[[T], None],
    is_early: bool = True,
) -> T:
    """Recovers in a thread while the ports are open; a failure leaves nothing open, and is raised.

    The ports are opened after the directory is locked, so that a second server reports the lock and not the ports. If
    they are not opened early, they are opened when the recovery has ended.
    """
    recovering = asyncio.create_task(asyncio.to_thread(recover, startup.tell))
    begun = asyncio.create_task(startup.begun())
    is_open = False
    try:
        await asyncio.wait([recovering, begun] if is_early else [recovering], return_when=asyncio.FIRST_COMPLETED)
        if not recovering.done():
            await open_ports()
            is_open = True
        recovered = await asyncio.shield(recovering)
        if not is_open:
            await open_ports()
    except BaseException:
        startup.stop()
        await asyncio.wait([recovering])
        if not recovering.cancelled() and recovering.exception() is None:
            discard(recovering.result())
        await close_ports()
        raise
    finally:
        begun.cancel()
    return recovered


def _soon(call: Callable[[], None]) -> Callable[[], object]:
    loop = asyncio.get_running_loop()
    return lambda: loop.call_soon_threadsafe(call)
