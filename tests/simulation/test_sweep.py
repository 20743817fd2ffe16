"""Many seeds: no promise breaks, and the sweep really does what it claims to do.

`make sim` searches for longer; with SEEDS=n this sweep is over so many seeds.
"""

import os
from pathlib import Path

import pytest

from holdfast.testing.simulation import regressions
from holdfast.testing.simulation.runner import EVENTS_DEFAULT, Tally, run_seed, run_settings
from holdfast.testing.simulation.swarm import Settings, draw

SEEDS = int(os.environ.get("SEEDS", "16"))
SEEDS_PER_CHUNK = 4
#: Shorter runs of other seeds, as many as it takes to meet everything.
MORE_SEEDS, FEW_EVENTS = range(16, 80), 6_000
REGRESSIONS = Path(__file__).parent / "regressions.txt"


def is_swept(settings: Settings) -> bool:
    """Whether the sweep makes this very run."""
    return settings.seed < SEEDS and settings == draw(settings.seed, EVENTS_DEFAULT)


def failures(tally: Tally) -> list[str]:
    return [f"SEED={outcome.settings.seed}: {outcome.failure}" for outcome in tally.failed]


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_CHUNK))
def test_no_promise_breaks(first: int) -> None:
    """Every promise holds in every run of the chunk."""
    tally = Tally()
    for seed in range(first, min(first + SEEDS_PER_CHUNK, SEEDS)):
        tally.add(run_seed(seed))
    assert failures(tally) == []


@pytest.mark.slow
def test_sweep_meets_every_operation_and_every_fault() -> None:
    """Over a handful of seeds each kind of operation succeeds, each kind of fault strikes, and no promise breaks."""
    tally = Tally()
    for seed in MORE_SEEDS:
        tally.add(run_seed(seed, FEW_EVENTS))
        if not tally.missing():
            break
    assert tally.missing() == []
    assert failures(tally) == []


@pytest.mark.parametrize(
    "settings",
    [settings for settings in regressions.read_all(REGRESSIONS) if not is_swept(settings)],
    ids=lambda settings: f"seed-{settings.seed}",
)
def test_what_once_failed_holds(settings: Settings) -> None:
    """A run that once broke a promise keeps it now; the sweep has seen the others."""
    assert run_settings(settings).failure == ""
