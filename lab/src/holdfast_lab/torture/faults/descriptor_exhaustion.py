"""More idle connections than a process has descriptors for."""

import asyncio
import contextlib
import random
import resource
from pathlib import Path

from holdfast_lab.torture.faults.link_condition import reset
from holdfast_lab.torture.faults.targets import some_time
from holdfast_lab.torture.faults.wait_until import felt
from holdfast_lab.torture.ports import Arena, NotNowError

#: The number of connections beyond the process's limit of open files.
_BEYOND = 64
#: A process with a higher limit would need too many connections.
_LIMIT_MAX = 4_096
#: A process with at most this many free descriptors counts as exhausted.
_LEFT = 4
#: Each connection takes three descriptors of this process: the client's end, and both ends of the proxy.
_OURS = 3
_TOGETHER = 100


class Descriptors:
    """Holds more idle connections to the server than it has descriptors."""

    kind = "descriptors"

    def lacking(self, arena: Arena) -> str:
        """Returns the reason why it cannot be fired, or an empty string."""
        if not arena.grpc:
            return f"{arena.topology} has no listening process"
        limits = [limit for process in arena.processes() if (limit := _limit_of(process.pid()))]
        if not limits or max(limits) > _LIMIT_MAX:
            return "the processes have more descriptors than the lab can use up"
        _, ours = resource.getrlimit(resource.RLIMIT_NOFILE)
        needed = _OURS * (max(limits) + _BEYOND)
        return "" if ours >= 2 * needed else f"the lab may open {ours} files, but needs twice {needed}"

    async def fire(self, arena: Arena, draw: random.Random) -> str:
        """Fires the fault; returns the number of connections, how many were rejected, and the duration."""
        place = draw.choice([*arena.grpc.split(","), arena.http])
        limit = max((_limit_of(process.pid()) for process in arena.processes()), default=0)
        if not limit:
            raise NotNowError("no process is running")
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        crowd, seconds = _IdleConnections(place), some_time(draw)
        try:
            await crowd.gather(limit + _BEYOND)
            await felt(lambda: crowd.turned_away + _exhausted(arena), 0, seconds, "the idle connections")
            turned_away = crowd.turned_away
        finally:
            await crowd.leave()
        interface = "HTTP" if place == arena.http else "gRPC"
        return f"{limit + _BEYOND} idle connections for {interface}, {turned_away} rejected, {seconds:.1f} s"


class _IdleConnections:
    """Idle connections."""

    def __init__(self, place: str) -> None:
        host, _, port = place.rpartition(":")
        self._place = (host, int(port))
        self._tasks: list[asyncio.Task[None]] = []
        self.came = self.turned_away = 0

    async def gather(self, count: int) -> None:
        """Opens the connections; returns once each is open or was rejected."""
        while len(self._tasks) < count:
            self._tasks += [asyncio.create_task(self._idle()) for _ in range(min(_TOGETHER, count - len(self._tasks)))]
            while self.came + self.turned_away < len(self._tasks):  # noqa: ASYNC110 - each connection is a task
                await asyncio.sleep(0.01)

    async def leave(self) -> None:
        """Closes all connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _idle(self) -> None:
        try:
            reader, writer = await asyncio.open_connection(*self._place)
        except OSError:
            self.turned_away += 1
            return
        self.came += 1
        try:
            with contextlib.suppress(OSError):
                while await reader.read(4_096):
                    pass
            self.came -= 1
            self.turned_away += 1
        finally:
            reset(writer)


def _limit_of(pid: int) -> int:
    """Returns the limit of open files of a process; 0 if it is gone or belongs to another user."""
    if not pid:
        return 0
    try:
        return resource.prlimit(pid, resource.RLIMIT_NOFILE)[0]
    except (ProcessLookupError, PermissionError):
        return 0


def _exhausted(arena: Arena) -> int:
    """Returns how many processes have no free descriptors."""
    return sum(_open_files(process.pid()) >= _limit_of(process.pid()) - _LEFT > 0 for process in arena.processes())


def _open_files(pid: int) -> int:
    try:
        return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()) if pid else 0
    except OSError:
        return 0
