"""Every target: what was found once stays fixed, and a few hundred new inputs, the same each time, find nothing."""

import pytest
from hypothesis import given

from tests.fuzz import corpus
from tests.fuzz.budget import within_budget
from tests.fuzz.strategy import inputs_near, known_inputs, search_settings
from tests.fuzz.target import NAMES, target

EVERY_TARGET = pytest.mark.parametrize("name", NAMES)


@EVERY_TARGET
def test_inputs_that_are_kept_are_fine(name: str) -> None:
    """Neither the inputs to begin with nor those that once were findings find anything."""
    chosen = target(name)
    for data in known_inputs(chosen):
        within_budget(chosen.fuzz, data)


@EVERY_TARGET
def test_new_inputs_find_nothing(name: str) -> None:
    """Whatever the bytes are, the target raises nothing."""
    chosen = target(name)

    @search_settings(chosen.examples)
    @given(inputs_near(known_inputs(chosen)))
    def try_one(data: bytes) -> None:
        within_budget(chosen.fuzz, data)

    try_one()


def test_every_target_is_listed() -> None:
    """A module that is not listed would never be tried, and a folder of inputs without a target neither."""
    modules = {path.stem for path in (corpus.INPUTS.parent / "targets").glob("*.py")}
    assert modules == set(NAMES)
    assert {path.name for path in corpus.INPUTS.iterdir() if path.is_dir()} <= set(NAMES)
