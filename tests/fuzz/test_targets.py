"""Every target: what was found once stays fixed, and a few hundred new inputs, the same each time, find nothing."""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz import corpus
from tests.fuzz.budget import within_budget
from tests.fuzz.mutation import mutated
from tests.fuzz.target import NAMES, Target, target

EVERY_TARGET = pytest.mark.parametrize("name", NAMES)


def inputs_of(chosen: Target) -> st.SearchStrategy[bytes]:
    """Bytes, and changed copies of what the target begins with."""
    inputs = [*chosen.seeds, *(path.read_bytes() for path in corpus.kept(chosen.name))]
    changed = st.integers(0, 1 << 32).map(lambda seed: mutated(random.Random(seed), inputs))
    return st.one_of(changed, changed, changed, st.binary(max_size=300))


@EVERY_TARGET
def test_inputs_that_are_kept_are_fine(name: str) -> None:
    """Neither the inputs to begin with nor those that once were findings find anything."""
    chosen = target(name)
    for data in chosen.seeds:
        within_budget(chosen.fuzz, data)
    for path in corpus.kept(name):
        within_budget(chosen.fuzz, path.read_bytes())


@EVERY_TARGET
def test_new_inputs_find_nothing(name: str) -> None:
    """Whatever the bytes are, the target raises nothing."""
    chosen = target(name)

    @settings(
        max_examples=chosen.examples,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(inputs_of(chosen))
    def try_one(data: bytes) -> None:
        within_budget(chosen.fuzz, data)

    try_one()


def test_every_target_is_listed() -> None:
    """A module that is not listed would never be tried, and a folder of inputs without a target neither."""
    modules = {path.stem for path in (corpus.INPUTS.parent / "targets").glob("*.py")}
    assert modules == set(NAMES)
    assert {path.name for path in corpus.INPUTS.iterdir() if path.is_dir()} <= set(NAMES)
