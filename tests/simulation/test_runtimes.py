"""The product's own workers and clients on simulated connections."""

import pytest

from holdfast_lab.simulation.swarm import SwarmSettings
from holdfast_lab.simulation.world import RunOutcome, SimulatedWorld

RATES = {
    "connection-reset": 120,
    "reset-after-send": 10,
    "clean-restart": 2_500,
    "kill": 2_500,
    "slow-sync": 700,
    "stall": 2_000,
    "wall-jump": 1_000,
}


def run(seed: int, *faults: str, events: int = 6_000) -> RunOutcome:
    settings = SwarmSettings(
        seed=seed,
        events=events,
        faults={name: RATES[name] for name in faults},
        clients=1,
        streaming=1,
        unary=0,
        run_ms=400,
        runtime_workers=2,
        runtime_clients=2,
    )
    assert settings.is_gentle
    return SimulatedWorld(settings).run()


@pytest.mark.parametrize(
    "faults",
    [("connection-reset",), ("connection-reset", "reset-after-send"), tuple(RATES)],
    ids=("resets", "resets in a conversation", "everything gentle"),
)
@pytest.mark.parametrize("seed", range(4))
def test_healthy_worker_never_loses_a_job(seed: int, faults: tuple[str, ...]) -> None:
    """Resets, restarts and slow disks take no job from a worker that keeps reconnecting; every submit is answered."""
    outcome = run(seed, *faults)
    assert outcome.failure == ""
    assert outcome.fired["connection-reset"] > 0
    assert outcome.done["runtime report"] > 0
    assert outcome.done["runtime submit"] > 0


def test_runs_of_real_code_are_the_same_each_time() -> None:
    """The code in the simulator uses neither the clock nor the randomness of the machine."""
    assert run(7, *RATES, events=2_000).digest == run(7, *RATES, events=2_000).digest
