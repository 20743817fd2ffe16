"""A seed determines the whole run."""

import os
import subprocess
import sys

import pytest

from holdfast_lab.simulation.runner import run_seed
from holdfast_lab.simulation.swarm import ALL_FAULTS, draw

EVENTS = 4_000


def digest_in_a_process(seed: int, hash_seed: str) -> str:
    command = [
        sys.executable,
        "-m",
        "holdfast_lab.simulation",
        "--seed",
        str(seed),
        "--events",
        str(EVENTS),
    ]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()[-1].removeprefix("digest: ")


@pytest.mark.parametrize("seed", [3, 17])
def test_trace_is_the_same_in_every_process(seed: int) -> None:
    """The digest over every step does not depend on the process or on PYTHONHASHSEED."""
    digests = {digest_in_a_process(seed, hash_seed) for hash_seed in ("0", "1", "424242")}
    assert digests == {run_seed(seed, EVENTS).digest}


def test_different_seeds_are_different_runs() -> None:
    """Another seed gives another trace and another swarm."""
    assert run_seed(1, 500).digest != run_seed(2, 500).digest
    assert draw(1, 500).describe() != draw(2, 500).describe()


def test_every_fault_is_drawn_and_left_out() -> None:
    """Over 60 seeds each fault is on in some run and off in another, and some run has no faults."""
    drawn = [draw(seed, 500).faults for seed in range(60)]
    assert all(any(fault in faults for faults in drawn) for fault in ALL_FAULTS)
    assert all(any(fault not in faults for faults in drawn) for fault in ALL_FAULTS)
    assert {} in drawn


def test_switching_one_fault_off_leaves_the_rest_of_the_swarm() -> None:
    """A run without one fault has the same sizes and the same other faults."""
    whole = draw(5, 500)
    fault = next(iter(whole.faults))
    less = whole.without(fault)
    assert {**less.faults, fault: whole.faults[fault]} == whole.faults
    assert less.lease_ms == whole.lease_ms
