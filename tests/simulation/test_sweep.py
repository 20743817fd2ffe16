"""Runs many seeds: no promise breaks, and every operation and fault occurs.

`make sim` searches for longer; the environment variable SEEDS sets the number of seeds of this sweep.
"""

import os
from pathlib import Path

import pytest

from holdfast_lab.simulation import regressions
from holdfast_lab.simulation.runner import EVENTS_DEFAULT, SweepTally, run_seed, run_settings
from holdfast_lab.simulation.swarm import SwarmSettings, draw

SEEDS = int(os.environ.get("SEEDS", "16"))
SEEDS_PER_CHUNK = 4
#: Shorter runs of other seeds, until every operation and fault has occurred.
MORE_SEEDS, FEW_EVENTS = range(16, 80), 6_000
REGRESSIONS = Path(__file__).parent / "regressions.txt"


def is_swept(settings: SwarmSettings) -> bool:
    """Whether the sweep includes this run."""
    return settings.seed < SEEDS and settings == draw(settings.seed, EVENTS_DEFAULT)


def failures(tally: SweepTally) -> list[str]:
    return [f"SEED={outcome.settings.seed}: {outcome.failure}" for outcome in tally.failed]


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_CHUNK))
def test_no_promise_breaks(first: int) -> None:
    """Every promise holds in every run of the chunk."""
    tally = SweepTally()
    for seed in range(first, min(first + SEEDS_PER_CHUNK, SEEDS)):
        tally.add(run_seed(seed))
    assert failures(tally) == []


@pytest.mark.slow
def test_sweep_meets_every_operation_and_every_fault() -> None:
    """Over a few seeds each kind of operation succeeds, each kind of fault occurs, and no promise breaks."""
    tally = SweepTally()
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
def test_runs_that_once_broke_a_promise_keep_it(settings: SwarmSettings) -> None:
    """A run that once broke a promise keeps it now; runs that the sweep includes are not repeated."""
    assert run_settings(settings).failure == ""
