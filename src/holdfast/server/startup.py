"""What callers are told while a server recovers: that it lives, how far it has come, and to try again.

The thread of the recovery tells how far it is; the loop's thread reads it. The two share one tuple, replaced whole.
"""

import asyncio
from collections.abc import Callable

import msgspec

from holdfast.errors import UnavailableError

_STAGES = {"": "opening the journal", "snapshot": "reading the snapshot", "journal": "replaying the journal"}


class StartStoppedError(Exception):
    """The start was given up; no job was changed."""


class Startup:
    """The progress of one start."""

    def __init__(self) -> None:
        self._told = ("", 0, 0)
        self._is_stopped = False
        #: From now on calls are answered by the backend.
        self.is_over = False
        self._begun = asyncio.Event()
        self._tell_begun: Callable[[], object] = _soon(self._begun.set)

    def tell(self, stage: str, done: int, total: int) -> None:
        """On the thread of the recovery: this much of a stage is done. `StartStoppedError` ends the recovery."""
        if self._is_stopped:
            raise StartStoppedError
        if not self._told[0]:
            self._tell_begun()
        self._told = (stage, done, total)

    async def begun(self) -> None:
        """Returns at the first word of the recovery: the directory is then claimed by this process."""
        await self._begun.wait()

    def stop(self) -> None:
        """The recovery ends at its next word."""
        self._is_stopped = True

    @property
    def percent(self) -> int:
        """How much of the present stage is done."""
        _, done, total = self._told
        return min(100, 100 * done // total) if total > 0 else 0

    @property
    def document(self) -> bytes:
        """The answer of a probe."""
        stage, done, total = self._told
        progress = {"stage": stage or "open", "done": done, "total": total, "percent": self.percent}
        return msgspec.json.encode({"state": "starting", "progress": progress}) + b"\n"

    def error(self) -> UnavailableError:
        """The answer to every call."""
        return UnavailableError(
            f"the server is starting: {_STAGES[self._told[0]]}, {self.percent} % done; try again in a moment",
            reason="SERVER_STARTING",
        )


def _soon(call: Callable[[], None]) -> Callable[[], object]:
    loop = asyncio.get_running_loop()
    return lambda: loop.call_soon_threadsafe(call)
