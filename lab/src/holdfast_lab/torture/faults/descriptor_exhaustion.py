"""A process without a free descriptor.

The product bounds its connections below the limit of open files, so connections alone cannot use it up. The fault
lowers the limit of the running process to the descriptors in use and a few more, and idle connections use these up.
"""

import asyncio
import contextlib
import os
import random
import resource
from collections.abc import Iterator

from holdfast_lab.measure.reserved_ports import HOST
from holdfast_lab.torture.faults.link_condition import reset
from holdfast_lab.torture.faults.listening_ports import listening_ports
from holdfast_lab.torture.faults.targets import called, some_time
from holdfast_lab.torture.faults.wait_until import FELT_S, until
from holdfast_lab.torture.ports import Arena, ArenaProcess, NotNowError, UnrecoveredError

#: Descriptors that the process may still open.
_FREE_MAX = 4
#: Idle connections that use them up, and idle connections afterwards, of which the server has to close half.
_EXHAUSTING, _STRANGERS = 24, 128
#: Long enough for several scans of a server, and shorter than its limit for a handshake, which ends them too.
_CLOSED_S = 6.0
_SECONDS = (0.5, 6.0)
_WORKERS = "worker"


class Descriptors:
    """Leaves one server no free descriptor for a while, and checks that it still closes idle connections later."""

    kind = "descriptors"

    def lacking(self, arena: Arena) -> str:
        """Returns the reason why it cannot be fired, or an empty string."""
        if not hasattr(resource, "prlimit"):
            return "this system cannot change the limit of another process"
        return "" if _servers(arena) else f"{arena.topology} has no listening process"

    async def fire(self, arena: Arena, draw: random.Random) -> str:
        """Fires the fault; returns the process, its limit, how many connections were rejected, and the duration."""
        servers = [one for one in _servers(arena) if one.is_ready()]
        if not servers:
            raise NotNowError("no server is ready")
        server = draw.choice(servers)
        pid, port = server.pid(), draw.choice(listening_ports(server.pid()) or [0])
        seconds, crowd = some_time(draw, *_SECONDS), _IdleConnections(port)
        try:
            with _few_descriptors(pid, draw.randint(1, _FREE_MAX)) as limit:
                await crowd.gather(_EXHAUSTING)
                if not await until(lambda: _free_numbers(pid, limit) == [], FELT_S):
                    raise NotNowError(f"{called(server)}: it has free descriptors")
                await asyncio.sleep(seconds)
                turned_away = crowd.turned_away
        finally:
            await crowd.leave()
        await _check_recovery(server, pid, port)
        rejected = f"{turned_away} of {_EXHAUSTING} connections to port {port} rejected"
        return f"{called(server)}, a limit of {limit}, {rejected}, {seconds:.1f} s"


async def _check_recovery(server: ArenaProcess, pid: int, port: int) -> None:
    """Raises `UnrecoveredError` if the server keeps too many idle connections."""
    crowd = _IdleConnections(port)
    try:
        await crowd.gather(_STRANGERS)
        is_well = await until(lambda: crowd.turned_away >= _STRANGERS // 2, _CLOSED_S)
    finally:
        await crowd.leave()
    if server.pid() != pid:
        raise UnrecoveredError(f"{called(server)} ended when it had no free descriptor")
    if not is_well:
        raise UnrecoveredError(
            f"{called(server)} had no free descriptor for a moment, and afterwards closed only {crowd.turned_away} of"
            f" {_STRANGERS} idle connections to port {port} within {_CLOSED_S:g} s"
        )


@contextlib.contextmanager
def _few_descriptors(pid: int, count: int) -> Iterator[int]:
    """Leaves the process this many free descriptors until the block ends; yields its limit."""
    try:
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        limit = _free_numbers(pid, before[0])[count]
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, before[1]))
    except (OSError, IndexError) as error:
        raise NotNowError(f"the limit of process {pid} cannot be lowered: {error}") from None
    try:
        yield limit
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def _free_numbers(pid: int, limit: int) -> list[int]:
    """Returns the unused descriptors below the limit; raises OSError if the process is gone."""
    used = {int(entry.name) for entry in os.scandir(f"/proc/{pid}/fd")}
    return [number for number in range(limit) if number not in used]


def _servers(arena: Arena) -> list[ArenaProcess]:
    return [one for one in arena.processes() if one.role != _WORKERS and one.pid() and listening_ports(one.pid())]


class _IdleConnections:
    """Connections that send nothing."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._tasks: list[asyncio.Task[None]] = []
        self.came = self.turned_away = 0

    async def gather(self, count: int) -> None:
        """Opens the connections; returns once each is open or was rejected, or after a few seconds."""
        self._tasks = [asyncio.create_task(self._idle()) for _ in range(count)]
        await until(lambda: self.came + self.turned_away >= count, FELT_S)

    async def leave(self) -> None:
        """Closes all connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _idle(self) -> None:
        try:
            reader, writer = await asyncio.open_connection(HOST, self._port)
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
