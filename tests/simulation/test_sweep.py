"""Many seeds: no promise breaks, and the sweep really does what it claims to do."""

from pathlib import Path

import pytest

from holdfast.testing.simulation import regressions
from holdfast.testing.simulation.runner import Tally, run_seed, run_settings
from holdfast.testing.simulation.swarm import Settings

SEEDS_PER_CHUNK = 5
CHUNKS = 12
REGRESSIONS = Path(__file__).parent / "regressions.txt"


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_promise_breaks(chunk: int) -> None:
    """Every promise holds in every run of the chunk."""
    tally = Tally()
    for seed in range(chunk * SEEDS_PER_CHUNK, (chunk + 1) * SEEDS_PER_CHUNK):
        tally.add(run_seed(seed))
    assert [f"SEED={outcome.settings.seed}: {outcome.failure}" for outcome in tally.failed] == []


@pytest.mark.slow
def test_sweep_meets_every_operation_and_every_fault() -> None:
    """Over a handful of seeds each kind of operation succeeds and each kind of fault strikes."""
    tally = Tally()
    for seed in range(40):
        tally.add(run_seed(seed, 8_000))
    assert tally.missing() == []


@pytest.mark.parametrize("settings", regressions.read_all(REGRESSIONS), ids=lambda settings: f"seed-{settings.seed}")
def test_what_once_failed_holds(settings: Settings) -> None:
    """A run that once broke a promise keeps it now."""
    assert run_settings(settings).failure == ""
