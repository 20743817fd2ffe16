"""A ledger and its ports in this process, with a clock that stands still: nothing happens without a request."""

import asyncio
import traceback
from collections.abc import Coroutine, Iterable, MutableMapping
from functools import cache
from typing import Any

from structlog.testing import capture_logs

from holdfast.clock import Uptime
from holdfast.ledger.service import LedgerCore
from holdfast.server.backend import Backend
from holdfast.settings import Settings

NOW_MS = 1_700_000_000_000
#: Time limit of a response that needs no wait.
PATIENCE_S = 20.0
#: Limit of polls, a millisecond apart, for work of another thread.
LOOKS = 20_000
_TROUBLE = {"error", "critical"}


class StillClock:
    """A clock that always shows the same time."""

    def wall_ms(self) -> int:
        """Milliseconds of UTC."""
        return NOW_MS

    def steady_ms(self) -> int:
        """Milliseconds since an arbitrary time."""
        return 1_000_000

    def uptime(self) -> Uptime | None:
        return None


class World:
    """One ledger in memory, from `begin` to `end`."""

    def __init__(self) -> None:
        self.failures: list[BaseException] = []
        self._core = LedgerCore(Settings(data="memory://"), self.failures.append, StillClock())
        self._core.open()
        self._core.prepare()
        core = self._core
        self.backend = Backend(core.jobs, core.work, core.admin, core.feed, core.schedules)
        self.terms = core.terms()

    async def begin(self) -> None:
        """Starts the ledger."""
        self._core.start()
        await self.settle()

    @property
    def mark(self) -> tuple[int, int]:
        """Equal only for journals with equal bytes, because each frame's checksum includes that of the one before."""
        return self._core.journal.end_position, self._core.journal.end_checksum

    async def settle(self) -> None:
        """Runs all ready tasks, and waits for a sync of the journal on another thread."""
        await settle()
        for _ in range(LOOKS):
            if not self._core.coordinator.commit.is_syncing:
                break
            await asyncio.sleep(0.001)
            await settle()

    async def end(self) -> None:
        """Closes everything, and checks that nothing failed."""
        self._core.dismiss()
        await self._core.close()
        assert self.failures == [], self.failures


async def settle() -> None:
    """Runs all ready tasks."""
    for _ in range(10):
        await asyncio.sleep(0)


@cache
def _runner() -> asyncio.Runner:
    """One loop for all inputs: making one costs more than most inputs do."""
    return asyncio.Runner()


def run(main: Coroutine[Any, Any, None]) -> None:
    """Runs one input to its end and leaves no task behind; fails if a bug was logged, or raised in a callback."""
    with capture_logs() as lines:
        try:
            _runner().run(_alone(main))
        finally:
            _check(lines)  # a logged bug explains more than the error that follows from it


def _check(lines: Iterable[MutableMapping[str, Any]]) -> None:
    bugs = [line for line in lines if line["log_level"] in _TROUBLE]
    for line in bugs:
        error = line.get("exc_info")
        assert not isinstance(error, BaseException), "".join(traceback.format_exception(error))
    assert bugs == []


async def _alone(main: Coroutine[Any, Any, None]) -> None:
    unhandled: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    try:
        await main
    finally:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
    for context in unhandled:
        error = context.get("exception")
        assert not isinstance(error, BaseException), "".join(traceback.format_exception(error))
    assert unhandled == []
