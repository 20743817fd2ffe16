"""More idle connections than a process has descriptors for."""

import asyncio
import contextlib
import random
import resource
from pathlib import Path

from holdfast.lab.torture.faults.targets import some_time
from holdfast.lab.torture.faults.watching import felt
from holdfast.lab.torture.faults.weather import reset
from holdfast.lab.torture.ports import Arena, NotNowError

#: How many more connections come than a process may have files open.
_BEYOND = 64
#: A process with more descriptors than this is not worth the connections.
_LIMIT_MAX = 4_096
#: So many of its descriptors may be left to a process that has no more.
_LEFT = 4
#: Each connection is three descriptors of this process: the end of the crowd, and both ends of the proxy.
_OURS = 3
_TOGETHER = 100


class Descriptors:
    """Idle connections are held against the server, more than it has descriptors."""

    kind = "descriptors"

    def lacking(self, arena: Arena) -> str:
        """Why it cannot be fired."""
        if not arena.grpc:
            return f"nobody of {arena.topology} listens"
        limits = [limit for process in arena.processes() if (limit := _limit_of(process.pid()))]
        if not limits or max(limits) > _LIMIT_MAX:
            return "the processes have more descriptors than the lab can use up"
        _, ours = resource.getrlimit(resource.RLIMIT_NOFILE)
        needed = _OURS * (max(limits) + _BEYOND)
        return "" if ours >= 2 * needed else f"the lab may open {ours} files, and this takes twice {needed}"

    async def fire(self, arena: Arena, draw: random.Random) -> str:
        """How many connections came, how many of them were turned away, and for how long."""
        place = draw.choice([*arena.grpc.split(","), arena.http])
        limit = max((_limit_of(process.pid()) for process in arena.processes()), default=0)
        if not limit:
            raise NotNowError("no process is there")
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        crowd, seconds = _Crowd(place), some_time(draw)
        try:
            await crowd.gather(limit + _BEYOND)
            await felt(lambda: crowd.turned_away + _exhausted(arena), 0, seconds, "the crowd")
            turned_away = crowd.turned_away
        finally:
            await crowd.leave()
        interface = "HTTP" if place == arena.http else "gRPC"
        return f"{limit + _BEYOND} idle connections for {interface}, {turned_away} turned away, {seconds:.1f} s"


class _Crowd:
    """Connections that say nothing."""

    def __init__(self, place: str) -> None:
        host, _, port = place.rpartition(":")
        self._place = (host, int(port))
        self._tasks: list[asyncio.Task[None]] = []
        self.came = self.turned_away = 0

    async def gather(self, count: int) -> None:
        """Returns once all have come, or were refused."""
        while len(self._tasks) < count:
            self._tasks += [asyncio.create_task(self._idle()) for _ in range(min(_TOGETHER, count - len(self._tasks)))]
            while self.came + self.turned_away < len(self._tasks):  # noqa: ASYNC110 - each is a task of its own
                await asyncio.sleep(0.01)

    async def leave(self) -> None:
        """All at once."""
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
    """How many descriptors a process may have; 0 if it is gone, or another user's."""
    if not pid:
        return 0
    try:
        return resource.prlimit(pid, resource.RLIMIT_NOFILE)[0]
    except (ProcessLookupError, PermissionError):
        return 0


def _exhausted(arena: Arena) -> int:
    """How many processes have no descriptors left."""
    return sum(_open_files(process.pid()) >= _limit_of(process.pid()) - _LEFT > 0 for process in arena.processes())


def _open_files(pid: int) -> int:
    try:
        return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()) if pid else 0
    except OSError:
        return 0
