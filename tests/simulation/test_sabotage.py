"""The checks can fail: every broken variant is detected."""

import pytest

from holdfast_lab.sabotage import Variant, judge
from holdfast_lab.sabotage_table import VARIANTS
from holdfast_lab.simulation.runner import run_seed

BROKEN_ENOUGH = 22


@pytest.mark.timeout(300)
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_broken_variant_is_caught(variant: Variant) -> None:
    """The simulator, or the test that the variant names, detects the edit."""
    verdict = judge(variant)
    assert verdict.is_caught, verdict.how


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_variant_fits_the_source(variant: Variant) -> None:
    """The text that a variant replaces occurs exactly once, and the result compiles."""
    variant.check()


@pytest.mark.parametrize(
    ("seed", "events"), sorted({(variant.seed, variant.events) for variant in VARIANTS if not variant.test})
)
def test_sound_program_passes_where_variants_fail(seed: int, events: int) -> None:
    """The seeds that detect variants find no failure in the unchanged program."""
    assert run_seed(seed, events).failure == ""


def test_there_are_enough_variants() -> None:
    """The table has enough variants, and no name is used twice."""
    assert len({variant.name for variant in VARIANTS}) == len(VARIANTS) >= BROKEN_ENOUGH


def test_text_that_is_gone_is_noticed() -> None:
    """A variant whose text no longer occurs is an error, not a variant without effect."""
    with pytest.raises(LookupError, match="found it 0 times"):
        Variant("outdated", "core/tasks.py", "no such line", "").check()
