"""The settings of one run of a cluster, drawn from its seed: nodes, shards, times, actors and faults."""

import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from holdfast_lab.simulation.swarm import SwarmSettings

#: Faults of the cluster, with their minimal and maximal mean interval in simulated milliseconds.
CLUSTER_INTERVALS_MS: Mapping[str, tuple[int, int]] = {
    "node-kill": (200, 2_000),
    "node-pause": (60, 500),
    "node-drain": (300, 3_000),
    "node-cut-off": (100, 800),
    "database-restart": (300, 3_000),
    "database-failover": (150, 1_500),
    "database-stall": (100, 1_200),
    "standby-stall": (40, 500),
    "canceled-waits": (30, 400),
    "wall-jump": (200, 3_000),
}
#: Faults of single calls of the database, with their maximal percentage.
CALL_PERCENTS: Mapping[str, float] = {
    "lost_request": 4,
    "lost_answer": 6,
    "late_request": 4,
    "late_answer": 8,
    "cut": 4,
}
#: Faults of single messages of clients and workers, with their maximal percentage.
MESSAGE_PERCENTS: Mapping[str, int] = {
    "drop-request": 6,
    "drop-reply": 6,
    "duplicate": 8,
    "late-report": 60,
    "twice-report": 15,
    "poison": 3,
}
_OFTEN = 0.6
_FEW = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """One run; an absent fault is off."""

    seed: int
    events: int
    nodes: int = 3
    shards: int = 1
    lease_ms: int = 900
    limit_ms: int = 150
    #: The largest difference of a steady clock to true time, in thousandths.
    clock_rate_permille: int = 20
    segment_bytes: int = 8_192
    snapshot_ms: int = 2_000
    read_bytes: int = 2_000
    check_steps: int = 400
    #: Rows that users put into the inbox, in all.
    inbox_rows: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    calls: dict[str, float] = field(default_factory=dict)
    messages: dict[str, int] = field(default_factory=dict)

    def describe(self) -> str:
        """Returns all settings as text for people."""
        return " ".join(f"{name}={value}" for name, value in asdict(self).items())

    def actors(self, shard: int) -> SwarmSettings:
        """Returns the settings of the clients and workers of one shard."""
        rng = random.Random(f"actors/{self.seed}/{shard}")
        lease_ms = rng.choice([1_500, 5_000])
        return SwarmSettings(
            seed=1_000 * self.seed + shard,
            events=self.events,
            # The first one says that leases may be lost in this run.
            faults={"partition": 0, **self.messages},
            clients=rng.randint(1, 3),
            think_ms=rng.choice([5, 20, 60]),
            streaming=rng.randint(1, 2),
            unary=rng.randint(0, 1),
            slots=rng.choice([1, 4]),
            run_ms=rng.choice([2, 10, 40]),
            lease_ms=lease_ms,
            beat_ms=lease_ms // 4,
            payload_bytes=rng.choice([20, 200]),
            frame_bytes=rng.choice([1_024, 1 << 20]),
            retain_ms=rng.choice([2_000, 60_000]),
            retain_jobs=rng.choice([20, 400]),
        )


def draw_cluster(seed: int, events: int) -> ClusterSettings:
    """Draws the settings of a seed."""
    rng = random.Random(f"cluster/{seed}")
    lease_ms = rng.choice([100, 100, 200, 400, 1_000])
    share = rng.choice([0.0, 0.3, 0.5, 0.8])
    only = rng.sample(sorted(CLUSTER_INTERVALS_MS), rng.randint(1, 2)) if rng.random() < _FEW else None
    faults = {}
    for name, (low, high) in CLUSTER_INTERVALS_MS.items():
        rate = rng.randint(low, high)
        if rng.random() < share if only is None else name in only:
            faults[name] = rate if only is None else low
    return ClusterSettings(
        seed=seed,
        events=events,
        nodes=rng.randint(2, 4),
        shards=rng.choice([1, 1, 2, 3]),
        lease_ms=lease_ms,
        limit_ms=max(20, lease_ms // rng.choice([3, 6, 10])),
        segment_bytes=rng.choice([2_048, 8_192, 32_768]),
        snapshot_ms=rng.choice([500, 2_000]),
        read_bytes=rng.choice([1, 500, 4_000]),
        inbox_rows=rng.choice([0, 20, 60]),
        faults=faults,
        calls={name: rng.random() * high for name, high in CALL_PERCENTS.items() if rng.random() < share},
        messages={name: rng.randint(1, high) for name, high in MESSAGE_PERCENTS.items() if rng.random() < _OFTEN},
    )
