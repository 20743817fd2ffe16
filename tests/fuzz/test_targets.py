"""Every target with its stored findings, and with a few hundred new inputs that are the same in every run."""

import pytest
from hypothesis import given

from tests.fuzz import corpus
from tests.fuzz.budget import within_budget
from tests.fuzz.strategy import inputs_near, known_inputs, search_settings
from tests.fuzz.target import NAMES, target

EVERY_TARGET = pytest.mark.parametrize("name", NAMES)


@EVERY_TARGET
def test_inputs_that_are_kept_are_fine(name: str) -> None:
    """The target accepts its seeds and all stored findings."""
    chosen = target(name)
    for data in known_inputs(chosen):
        within_budget(chosen.fuzz, data)


@EVERY_TARGET
def test_new_inputs_find_nothing(name: str) -> None:
    """The target raises nothing for new inputs."""
    chosen = target(name)

    @search_settings(chosen.examples)
    @given(inputs_near(known_inputs(chosen)))
    def try_one(data: bytes) -> None:
        within_budget(chosen.fuzz, data)

    try_one()


def test_every_target_is_listed() -> None:
    """Every module of targets is listed, and every folder of inputs belongs to a target."""
    modules = {path.stem for path in (corpus.INPUTS.parent / "targets").glob("*.py")}
    assert modules == set(NAMES)
    assert {path.name for path in corpus.INPUTS.iterdir() if path.is_dir()} <= set(NAMES)
