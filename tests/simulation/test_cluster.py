"""The simulated cluster: no guarantee is broken, every fault happens, and a seed determines the run."""

import pytest

from holdfast_lab.simulation.cluster_search import missing
from holdfast_lab.simulation.cluster_settings import draw_cluster
from holdfast_lab.simulation.cluster_world import run_cluster_seed

EVENTS = 4_000


def test_sweep_finds_nothing_and_misses_nothing() -> None:
    """Thirty seeds break no guarantee, and meet every fault and every way in which a leadership ends."""
    outcomes = [run_cluster_seed(seed, EVENTS) for seed in range(30)]
    assert [(outcome.settings.seed, outcome.failure) for outcome in outcomes if outcome.failure] == []
    assert missing(name for outcome in outcomes for name in outcome.fired) == []


@pytest.mark.parametrize("seed", [3, 4])
def test_seed_determines_the_run(seed: int) -> None:
    """The digest over every step is the same in each run, although threads take part."""
    assert run_cluster_seed(seed, 1_500).digest == run_cluster_seed(seed, 1_500).digest


def test_run_without_faults_needs_no_second_leadership() -> None:
    """Without faults every shard has one leader from the beginning to the end, apart from the first even spread."""
    calm = next(seed for seed in range(200) if not (draw := draw_cluster(seed, EVENTS)).faults and not draw.calls)
    outcome = run_cluster_seed(calm, EVENTS)
    assert outcome.failure == ""
    assert outcome.fired.keys().isdisjoint({"stepped down", "lost lease-ended", "lost taken-over"})
