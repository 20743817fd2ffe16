"""The conditions that `/readyz` and the metrics of a public server show: its own, or those of processes behind it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from holdfast.core.condition import Condition, Conditions, parsed
from holdfast.errors import HoldfastError
from holdfast.observe.logs import get_logger
from holdfast.ports import AdminApi

#: Reads the current conditions; never raises an operating error.
ReadConditions = Callable[[], Awaitable[Sequence[Condition]]]

#: How old an answer may be: any client may read `/readyz`, and must not be able to flood the processes behind it.
_FRESH_S = 1.0
#: How long a probe waits for an answer; an orchestrator's own limit is often one second.
_WAIT_S = 0.5
_UNKNOWN = Condition("warnings of the processes that store the jobs are unknown, because one of them does not answer")


async def no_conditions_here() -> Sequence[Condition]:
    """Reports no problems."""
    return ()


def local(conditions: Conditions) -> ReadConditions:
    """Returns a reader of conditions of this process."""

    async def read() -> Sequence[Condition]:
        return conditions()

    return read


def of_backend(admin: AdminApi | None) -> ReadConditions:
    """Returns a reader of the warnings in the statistics of a backend; one without administration has none."""
    if admin is None:
        return no_conditions_here

    async def read() -> Sequence[Condition]:
        return [parsed(warning) for warning in (await admin.stats()).warnings]

    return RemoteConditions(read)


class RemoteConditions:
    """Reads the conditions of other processes at most once a second, for any number of callers."""

    def __init__(self, read: ReadConditions) -> None:
        """If `read` raises an error, the conditions are unknown, and an unexpected error is logged."""
        self._read = read
        self._reading: asyncio.Task[Sequence[Condition]] | None = None
        self._read_s = 0.0

    async def __call__(self) -> Sequence[Condition]:
        """Returns the conditions; if no answer comes in time, the condition that they are unknown."""
        reading = self._current()
        await asyncio.wait([reading], timeout=_WAIT_S)
        return reading.result() if reading.done() else [_UNKNOWN]

    def _current(self) -> "asyncio.Task[Sequence[Condition]]":
        now_s = asyncio.get_running_loop().time()
        if self._reading is None or (self._reading.done() and now_s - self._read_s >= _FRESH_S):
            self._read_s = now_s
            self._reading = asyncio.create_task(self._answered())
        return self._reading

    async def _answered(self) -> Sequence[Condition]:
        try:
            return await self._read()
        except HoldfastError:
            return [_UNKNOWN]
        except Exception as error:  # noqa: BLE001 - a probe must answer, whatever has failed
            get_logger().error("bug", message="the warnings could not be read", exc_info=error)
            return [_UNKNOWN]
