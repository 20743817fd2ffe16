"""The injection of the faults of a cluster: nodes, their clocks and connections, and the database."""

import random
from collections.abc import Callable, Sequence

from holdfast_lab.simulation.cluster_node import SimulatedNode
from holdfast_lab.simulation.cluster_settings import CLUSTER_INTERVALS_MS, ClusterSettings
from holdfast_lab.simulation.scheduler import SimulatedScheduler
from holdfast_lab.simulation.simulated_database import SimulatedDatabase

_DOWN_US = (3_000, 150_000)
_WALL_MS = 3_600_000
_BEHIND_US = (2_000, 60_000)
_FAILS = 0.15


class ClusterFaults:
    """Strikes at random times until the run heals."""

    def __init__(
        self,
        clock: SimulatedScheduler,
        settings: ClusterSettings,
        database: SimulatedDatabase,
        nodes: Sequence[SimulatedNode],
    ) -> None:
        self._clock = clock
        self._settings = settings
        self._database = database
        self._nodes = nodes
        self._is_over = False
        calls: dict[str, Callable[[random.Random], bool]] = {
            "node-kill": lambda rng: rng.choice(nodes).kill(),
            "node-pause": lambda rng: rng.choice(nodes).pause(self._leases_us(rng)),
            "node-drain": lambda rng: rng.choice(nodes).restart_cleanly(),
            "node-cut-off": self._cut_off,
            "database-restart": lambda rng: self._crash(rng, is_failover=False),
            "database-failover": lambda rng: self._crash(rng, is_failover=True),
            "database-stall": self._stall,
            "standby-stall": self._stall_standby,
            "canceled-waits": self._cancel,
            "wall-jump": self._wall_jump,
        }
        assert calls.keys() == CLUSTER_INTERVALS_MS.keys()
        for name in settings.faults:
            self._plan(name, calls[name], random.Random(f"{name}/{settings.seed}"))

    def stop(self) -> None:
        """Ends all faults."""
        self._is_over = True
        self._database.stalled_until_us = self._database.standby_stalled_until_us = 0
        for node in self._nodes:
            node.heal()

    def _plan(self, name: str, call: Callable[[random.Random], bool], rng: random.Random) -> None:
        mean_us = self._settings.faults[name] * 1_000
        self._clock.after(int(rng.expovariate(1) * mean_us) + 1, name, lambda: self._strike(name, call, rng))

    def _strike(self, name: str, call: Callable[[random.Random], bool], rng: random.Random) -> None:
        if not self._is_over:
            if call(rng):
                self._database.fired(name)
            self._plan(name, call, rng)

    def _leases_us(self, rng: random.Random) -> int:
        """Draws a time of up to three leases."""
        return int(rng.uniform(0.05, 3) * self._settings.lease_ms * 1_000)

    def _cut_off(self, rng: random.Random) -> bool:
        rng.choice(self._nodes).faults.blocked_until_us = self._clock.now_us + self._leases_us(rng)
        return True

    def _crash(self, rng: random.Random, *, is_failover: bool) -> bool:
        # The clocks of a primary and its standby differ by less than the margin of a lease.
        step_ms = rng.randint(-self._settings.lease_ms // 25, self._settings.lease_ms // 25)
        self._database.crash(rng.randint(*_DOWN_US), is_failover=is_failover, clock_step_ms=step_ms)
        return True

    def _stall(self, rng: random.Random) -> bool:
        self._database.stalled_until_us = self._clock.now_us + self._leases_us(rng)
        return True

    def _stall_standby(self, rng: random.Random) -> bool:
        self._database.standby_stalled_until_us = self._clock.now_us + self._leases_us(rng) // 4
        return True

    def _cancel(self, rng: random.Random) -> bool:
        """Cancels waits for a standby that is behind; sometimes the primary fails before the standby catches up."""
        database, behind_us = self._database, rng.randint(*_BEHIND_US)
        database.standby_stalled_until_us = max(database.standby_stalled_until_us, self._clock.now_us + behind_us)
        self._clock.after(rng.randint(1, behind_us), "cancel", database.cancel_waits)
        if "database-failover" in self._settings.faults and rng.random() < _FAILS:
            self._clock.after(behind_us, "failover", lambda: self._lose_machine(rng))
        return True

    def _lose_machine(self, rng: random.Random) -> None:
        """Ends the primary, and sometimes a leader that ran on the same machine."""
        self._crash(rng, is_failover=True)
        leaders = [node for node in self._nodes if node.servers]
        if leaders and "node-kill" in self._settings.faults:
            rng.choice(leaders).kill()

    def _wall_jump(self, rng: random.Random) -> bool:
        rng.choice(self._nodes).clock.offset_ms = rng.randint(-_WALL_MS, _WALL_MS)
        return True
