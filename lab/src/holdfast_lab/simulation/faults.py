"""Injects faults at random times, as the settings allow."""

import random
from collections.abc import Callable

from holdfast_lab.simulation.connections import Connection, Connector
from holdfast_lab.simulation.host import Host
from holdfast_lab.simulation.network import DOWN, UP, Network
from holdfast_lab.simulation.runtime_workers import RuntimeWorker
from holdfast_lab.simulation.scheduler import SimulatedScheduler
from holdfast_lab.simulation.swarm import SwarmSettings
from holdfast_lab.simulation.unary_workers import UnaryWorker
from holdfast_lab.simulation.workers import StreamingWorker

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_YEAR_2038_MS = 2_147_483_648_000
_OPERATIONS_AHEAD = 40
_STALL_US = (5_000, 20_000_000)
_FULL_US = (100_000, 4_000_000)
#: A long-lasting full disk: its duration in leases, and its share of all full disks.
_FULL_LEASES, _FULL_LONG_SHARE = (2, 8), 0.3
_PARTITION_US = (10_000, 4_000_000)
_SLOW_SYNC_US = (50_000, 3_000_000)


class FaultInjector:
    """Each fault has its own random source, so switching one off does not change the others."""

    def __init__(
        self,
        clock: SimulatedScheduler,
        host: Host,
        net: Network,
        settings: SwarmSettings,
        workers: list[StreamingWorker | UnaryWorker],
        connector: Connector,
        runtimes: list[RuntimeWorker],
    ) -> None:
        self._clock = clock
        self._host = host
        self._net = net
        self._settings = settings
        self._workers = workers
        self._connector = connector
        self._runtimes = runtimes
        self.is_over = False
        self._calls: dict[str, Callable[[random.Random], bool]] = {
            "power-cut": self._power_cut,
            "kill": self._kill,
            "crash-at-io": self._crash_at_io,
            "clean-restart": lambda _: self._host.stop(),
            "stall": self._stall,
            "wall-jump": self._wall_jump,
            "disk-full": self._disk_full,
            "failed-sync": self._failed_sync,
            "failed-write": self._failed_write,
            "slow-sync": self._slow_sync,
            "snapshot-killed": self._snapshot_killed,
            "partition": self._partition,
            "stream-break": self._stream_break,
            "stream-reset": self._stream_reset,
            "worker-pause": self._worker_pause,
            "worker-death": self._worker_death,
            "connection-reset": lambda rng: self._break_connection(rng, is_reset=True),
            "connection-break": lambda rng: self._break_connection(rng, is_reset=False),
            "connection-stall": self._stall_connection,
            "runtime-pause": self._runtime_pause,
            "runtime-death": self._runtime_death,
        }
        for name in self._calls:
            if name in settings.faults:
                self._plan(name, random.Random(f"{name}/{settings.seed}"))
        host.disk.faults.short_write_percent = settings.faults.get("short-write", 0)

    def _plan(self, name: str, rng: random.Random) -> None:
        mean_us = self._settings.faults[name] * 1_000
        self._clock.after(int(rng.expovariate(1) * mean_us) + 1, name, lambda: self._strike(name, rng))

    def _strike(self, name: str, rng: random.Random) -> None:
        if self.is_over:
            return
        if self._calls[name](rng):
            self._host.fired(name)
        self._plan(name, rng)

    # -- the machine

    def _power_cut(self, _: random.Random) -> bool:
        self._host.cut_power()
        return True

    def _kill(self, _: random.Random) -> bool:
        if self._host.server is None:
            return False
        self._host.kill()
        return True

    def _crash_at_io(self, rng: random.Random) -> bool:
        faults = self._host.disk.faults
        faults.crash_at_operation = self._host.disk.operations + rng.randint(1, _OPERATIONS_AHEAD)
        faults.crash_moment = rng.choice(["before", "middle", "after"])
        return True

    def _stall(self, rng: random.Random) -> bool:
        server = self._host.server
        if server is None or server.process.stalled_until_us > self._clock.now_us:
            return False
        server.process.stall(_between(rng, _STALL_US))
        return True

    def _wall_jump(self, rng: random.Random) -> bool:
        clock = self._clock
        target = rng.choice([_HOUR_MS, -_HOUR_MS, _DAY_MS, -_DAY_MS, 0, 0, 0, 1970, 2038])
        if target == 1970:  # noqa: PLR2004 - the year
            clock.set_wall(0)
        elif target == 2038:  # noqa: PLR2004
            clock.set_wall(_YEAR_2038_MS)
        else:
            clock.set_wall(clock.wall_ms() + target if target else _WALL_BACK_MS + clock.steady_ms())
        return True

    # -- the disk

    def _disk_full(self, rng: random.Random) -> bool:
        faults = self._host.disk.faults
        if faults.free_bytes is not None:
            return False
        faults.free_bytes = rng.choice([0, 300, 2_000])
        is_long = rng.random() < _FULL_LONG_SHARE
        lease_us = self._settings.lease_ms * 1_000
        full_us = lease_us * rng.randint(*_FULL_LEASES) if is_long else _between(rng, _FULL_US)
        self._clock.after(full_us, "disk has room", self._disk_heals)
        if is_long:
            self._host.fired("disk full for long")
        return True

    def _disk_heals(self) -> None:
        self._host.disk.faults.free_bytes = None
        self._host.healed_us = self._clock.now_us

    def _failed_sync(self, rng: random.Random) -> bool:
        return self._arm("fail_next_sync" if rng.random() < 0.75 else "fail_next_sync_dir")  # noqa: PLR2004

    def _failed_write(self, _: random.Random) -> bool:
        return self._arm("fail_next_write")

    def _arm(self, what: str) -> bool:
        if what in self._host.armed:
            return False
        setattr(self._host.disk.faults, what, True)
        self._host.armed.add(what)
        return True

    def _slow_sync(self, rng: random.Random) -> bool:
        server = self._host.server
        if server is None:
            return False
        server.process.slow_sync_us = _between(rng, _SLOW_SYNC_US)
        return True

    def _snapshot_killed(self, _: random.Random) -> bool:
        self._host.snapshotter.is_next_killed = True
        return False  # counted when it happens

    # -- the network and the workers

    def _partition(self, rng: random.Random) -> bool:
        who = rng.choice(
            [f"client-{number}" for number in range(self._settings.clients)] + [w.name for w in self._workers]
        )
        for direction in rng.choice([[UP], [DOWN], [UP, DOWN]]):
            self._net.block(who, direction, _between(rng, _PARTITION_US))
        return True

    def _stream_break(self, rng: random.Random) -> bool:
        streaming = [worker for worker in self._workers if isinstance(worker, StreamingWorker)]
        return bool(streaming) and rng.choice(streaming).break_stream()

    def _stream_reset(self, rng: random.Random) -> bool:
        streaming = [worker for worker in self._workers if isinstance(worker, StreamingWorker)]
        return bool(streaming) and rng.choice(streaming).break_stream(is_reset=True)

    def _worker_pause(self, rng: random.Random) -> bool:
        lease_us = self._settings.lease_ms * 1_000
        rng.choice(self._workers).pause(_between(rng, (lease_us // 4, lease_us * 3)))
        return True

    def _worker_death(self, rng: random.Random) -> bool:
        rng.choice(self._workers).die()
        return True

    # -- real workers and clients

    def _connection(self, rng: random.Random) -> Connection | None:
        programs = [program.open_connections for program in self._connector.programs]
        connections = [connection for some in programs for connection in some]
        return rng.choice(connections) if connections else None

    def _break_connection(self, rng: random.Random, *, is_reset: bool) -> bool:
        connection = self._connection(rng)
        if connection is not None:
            connection.break_off(is_reset=is_reset)
        return connection is not None

    def _stall_connection(self, rng: random.Random) -> bool:
        connection = self._connection(rng)
        if connection is not None:
            connection.stall(rng.choice([UP, DOWN]), _between(rng, _PARTITION_US))
        return connection is not None

    def _runtime_pause(self, rng: random.Random) -> bool:
        lease_us = self._settings.lease_ms * 1_000
        rng.choice(self._runtimes).pause(_between(rng, (lease_us // 4, lease_us * 3)))
        return True

    def _runtime_death(self, rng: random.Random) -> bool:
        rng.choice(self._runtimes).die()
        return True

    def stop(self) -> None:
        """Ends all faults, and repairs everything."""
        self.is_over = True
        self._disk_heals()
        faults, armed = self._host.disk.faults, self._host.armed
        # Faults that have struck stay known: the coordinator may notice them only at the end of its sync.
        armed.difference_update([name for name in armed if getattr(faults, name)])
        faults.fail_next_sync = faults.fail_next_sync_dir = faults.fail_next_write = False
        faults.short_write_percent = 0
        faults.crash_at_operation = None
        self._host.snapshotter.is_next_killed = False
        for worker in (*self._workers, *self._runtimes):
            worker.heal()


#: The true time, to which the wall clock is set back.
_WALL_BACK_MS = 1_767_225_600_000


def _between(rng: random.Random, bounds: tuple[int, int]) -> int:
    """Draws a value evenly over magnitudes: short durations are as likely as long ones."""
    low, high = max(1, bounds[0]), max(2, bounds[1])
    return int(low * (high / low) ** rng.random())
