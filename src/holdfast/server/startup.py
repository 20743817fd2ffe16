"""The progress of a server's recovery, and the replies to clients until it is over.

The recovery thread writes the progress, and the event loop's thread reads it. They share one tuple,
which is replaced as a whole.
"""

import asyncio
from collections.abc import Callable

import msgspec

from holdfast.errors import UnavailableError

_STAGES = {"": "opening the journal", "snapshot": "reading the snapshot", "journal": "replaying the journal"}


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


def _soon(call: Callable[[], None]) -> Callable[[], object]:
    loop = asyncio.get_running_loop()
    return lambda: loop.call_soon_threadsafe(call)
