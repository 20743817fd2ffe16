"""The settings of one run: sizes, actors and faults, all drawn from its seed.

Each run has some of the faults, each at its own rate. A sweep over many seeds therefore covers rare combinations, and
also runs without any fault.
"""

import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

#: All faults, with their minimal and maximal mean interval in simulated milliseconds.
FAULT_INTERVALS_MS: Mapping[str, tuple[int, int]] = {
    "power-cut": (800, 8_000),
    "kill": (800, 8_000),
    "crash-at-io": (800, 6_000),
    "clean-restart": (2_000, 15_000),
    "stall": (1_000, 10_000),
    "wall-jump": (500, 10_000),
    "disk-full": (1_500, 10_000),
    "failed-sync": (1_500, 10_000),
    "failed-write": (2_000, 12_000),
    "slow-sync": (500, 5_000),
    "snapshot-killed": (500, 4_000),
    "partition": (500, 6_000),
    "stream-break": (300, 4_000),
    "worker-pause": (500, 5_000),
    "worker-death": (500, 6_000),
}
#: Resets of a stream that both ends notice at once, with their minimal and maximal mean interval; drawn separately.
RESET_INTERVALS_MS = (100, 2_000)
#: Faults that do not affect workers and their network: a worker sends heartbeats again soon after a start.
GENTLE_FAULTS = frozenset(
    {
        *("stream-reset", "power-cut", "kill", "clean-restart", "stall", "wall-jump", "slow-sync"),
        *("snapshot-killed", "short-write", "connection-reset", "reset-after-send"),
    }
)
#: Faults of single messages or calls, with their maximal percentage.
FAULT_PERCENTS: Mapping[str, int] = {
    "drop-request": 10,
    "drop-reply": 10,
    "duplicate": 10,
    "slow-message": 10,
    "short-write": 30,
    "late-report": 80,
    "twice-report": 20,
    "poison": 4,
}
_DRAWN_FAULTS = (*FAULT_INTERVALS_MS, *FAULT_PERCENTS)
#: Faults of real workers and clients, and of their connections, with their mean intervals; also drawn separately.
RUNTIME_INTERVALS_MS: Mapping[str, tuple[int, int]] = {
    "connection-reset": (100, 2_000),
    "connection-break": (300, 4_000),
    "connection-stall": (500, 6_000),
    "runtime-pause": (500, 5_000),
    "runtime-death": (500, 6_000),
}
#: Maximal percentage of writes after which the connection is reset.
RESET_AFTER_SEND_PERCENT = 20
ALL_FAULTS = (*_DRAWN_FAULTS, "stream-reset", *RUNTIME_INTERVALS_MS, "reset-after-send")
_FEW = 0.3
_OFTEN = 0.5
_USUALLY = 0.8
#: These stop the coordinator, and so its children and connections.
STOPPING_FAULTS = frozenset({"power-cut", "kill", "crash-at-io", "clean-restart", "failed-sync", "failed-write"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SwarmSettings:
    """One run. `faults` maps a fault to its mean interval (ms) or its percentage; an absent one is off."""

    seed: int
    events: int
    faults: dict[str, int] = field(default_factory=dict)
    clients: int = 3
    think_ms: int = 20
    streaming: int = 3
    unary: int = 1
    slots: int = 4
    run_ms: int = 30
    lease_ms: int = 5_000
    beat_ms: int = 1_000
    queues: int = 2
    types: int = 2
    payload_bytes: int = 100
    aging_ms: int = 60_000
    segment_bytes: int = 16_384
    extent_bytes: int = 4_096
    frame_bytes: int = 1 << 20
    spare_bytes: int = 2_048
    outcome_bytes: int = 512
    waiting_max: int = 1_000
    retain_ms: int = 60_000
    retain_jobs: int = 200
    retain_bytes: int = 1 << 20
    snapshot_ms: int = 2_000
    check_steps: int = 400
    retain_failed_ms: int = 120_000
    doubt_ms: int = 5_000
    #: Above this size of held jobs new ones are refused; 0: never.
    memory_bytes: int = 0
    reconnect_grace_ms: int = 1_000
    turn_steps: int = 2_000
    #: Whether there is a worker that dies with the coordinator.
    has_local: bool = False
    #: Workers and clients that run the product's own code over connections.
    runtime_workers: int = 0
    runtime_clients: int = 0

    @property
    def runtime_worker_names(self) -> list[str]:
        """The workers that run the product's runtime."""
        return [f"runtime-worker-{number}" for number in range(self.runtime_workers)]

    @property
    def lasting_workers(self) -> list[str]:
        """The streaming workers that do not die with the coordinator."""
        return [f"worker-{number}" for number in range(self.streaming)]

    @property
    def is_gentle(self) -> bool:
        """Whether no fault in this run can explain the loss of a worker with its own process."""
        has_time = self.lease_ms >= _LONG_LEASE_MS and self.reconnect_grace_ms >= _LONG_GRACE_MS
        return has_time and GENTLE_FAULTS.issuperset(self.faults)

    def without(self, fault: str) -> "SwarmSettings":
        """Returns the same run with one fault switched off."""
        faults = {name: rate for name, rate in self.faults.items() if name != fault}
        return SwarmSettings(**{**asdict(self), "faults": faults})

    def shortened(self, events: int) -> "SwarmSettings":
        """Returns the same run, with its faults ending sooner."""
        return SwarmSettings(**{**asdict(self), "events": events})

    def describe(self) -> str:
        """Returns all settings as text for people."""
        values = {name: value for name, value in asdict(self).items() if name != "faults"}
        shown = " ".join(f"{name}={value}" for name, value in values.items())
        faults = " ".join(f"{name}:{rate}" for name, rate in self.faults.items()) or "none"
        return f"{shown}\n  faults: {faults}"


#: A worker reconnects and sends a heartbeat in less than these.
_LONG_LEASE_MS, _LONG_GRACE_MS = 5_000, 1_000
#: The steps of a turn in some of the seeds, by their remainder.
_SHORT_TURNS = {2: 4, 5: 40}


def draw(seed: int, events: int) -> SwarmSettings:
    """Draws the settings of a seed."""
    rng, apart = random.Random(f"swarm/{seed}"), random.Random(f"swarm of workers/{seed}")
    lease_ms = rng.choice([10, 60, 300, 1_500, 5_000, 5_000, 10_000])
    settings = SwarmSettings(
        seed=seed,
        events=events,
        faults={**_draw_faults(rng), **_draw_resets(apart)},
        clients=rng.randint(1, 5),
        think_ms=rng.choice([2, 5, 20, 60]),
        streaming=rng.randint(1, 5),
        unary=rng.randint(0, 2),
        slots=rng.choice([1, 2, 4, 8]),
        run_ms=rng.choice([2, 10, 40, 200]),
        lease_ms=lease_ms,
        beat_ms=max(3, lease_ms // rng.choice([3, 4, 5])),
        queues=rng.randint(1, 3),
        types=rng.randint(1, 3),
        payload_bytes=rng.choice([0, 20, 200, 1_500]),
        aging_ms=rng.choice([0, 200, 60_000]),
        segment_bytes=rng.choice([2_048, 8_192, 32_768]),
        extent_bytes=rng.choice([1_024, 4_096, 16_384]),
        frame_bytes=rng.choice([1_024, 8_192, 1 << 20]),
        spare_bytes=rng.choice([512, 2_048, 16_384]),
        waiting_max=rng.choice([6, 30, 1_000]),
        retain_ms=rng.choice([500, 5_000, 60_000]),
        retain_jobs=rng.choice([5, 40, 400]),
        retain_bytes=rng.choice([4_096, 1 << 20]),
        snapshot_ms=rng.choice([300, 1_000, 4_000]),
        check_steps=rng.choice([150, 400]),
        retain_failed_ms=rng.choice([300, 2_000, 20_000, 120_000]),
        doubt_ms=rng.choice([100, 1_000, 5_000, 60_000]),
        reconnect_grace_ms=apart.choice([0, 30, 1_000, 1_000, 1_000]),
        has_local=apart.random() < _OFTEN,
        memory_bytes=random.Random(f"memory/{seed}").choice([0, 20_000, 200_000]),
        turn_steps=_SHORT_TURNS.get(seed % 8, 2_000),
    )
    return _with_runtimes(settings, random.Random(f"swarm of runtimes/{seed}"))


def _with_runtimes(settings: SwarmSettings, rng: random.Random) -> SwarmSettings:
    """Adds real workers and clients; a run that is gentle without them stays gentle."""
    workers, clients = rng.choice([0, 1, 1, 2]), rng.choice([0, 1, 1, 2])
    faults = {}
    if workers + clients and rng.random() < _USUALLY:
        for name, (low, high) in RUNTIME_INTERVALS_MS.items():
            is_met = workers or name.startswith("connection")
            if is_met and rng.random() < _OFTEN and (name in GENTLE_FAULTS or not settings.is_gentle):
                faults[name] = rng.randint(low, high)
        if rng.random() < _OFTEN:
            faults["reset-after-send"] = rng.randint(1, RESET_AFTER_SEND_PERCENT)
    added = {"runtime_workers": workers, "runtime_clients": clients, "faults": {**settings.faults, **faults}}
    return SwarmSettings(**{**asdict(settings), **added})


def _draw_resets(rng: random.Random) -> dict[str, int]:
    return {"stream-reset": rng.randint(*RESET_INTERVALS_MS)} if rng.random() < _OFTEN else {}


def _draw_faults(rng: random.Random) -> dict[str, int]:
    """Draws many faults at once, or few with high rates: one fault may repair the damage of another before it shows."""
    share = rng.choice([0.0, 0.25, 0.5, 0.5, 0.75])
    only = rng.sample(_DRAWN_FAULTS, rng.randint(1, 3)) if rng.random() < _FEW else None
    faults = {}
    for name, (low, high) in FAULT_INTERVALS_MS.items():
        rate = rng.randint(low, high)
        if rng.random() < share if only is None else name in only:
            faults[name] = rate if only is None else low
    for name, high in FAULT_PERCENTS.items():
        percent = rng.randint(1, high)
        if rng.random() < share if only is None else name in only:
            faults[name] = percent
    return faults
