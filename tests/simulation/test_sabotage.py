"""The checks can fail: every broken variant is detected."""

import pytest

from holdfast_lab.sabotage import Variant, failure_of, judge
from holdfast_lab.sabotage_cluster_table import CLUSTER_VARIANTS
from holdfast_lab.sabotage_table import VARIANTS

BROKEN_ENOUGH, BROKEN_CLUSTERS = 22, 12
ALL = (*VARIANTS, *CLUSTER_VARIANTS)
#: One variant for each run that the unchanged program must pass.
RUNS = {(variant.seed, variant.events, variant.is_cluster): variant for variant in ALL if not variant.test}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("variant", ALL, ids=lambda variant: variant.name)
def test_broken_variant_is_caught(variant: Variant) -> None:
    """The simulator, or the test that the variant names, detects the edit."""
    verdict = judge(variant)
    assert verdict.is_caught, verdict.how


@pytest.mark.parametrize("variant", ALL, ids=lambda variant: variant.name)
def test_variant_fits_the_source(variant: Variant) -> None:
    """The text that a variant replaces occurs exactly once, and the result compiles."""
    variant.check()


@pytest.mark.parametrize("run", sorted(RUNS))
def test_sound_program_passes_where_variants_fail(run: tuple[int, int, bool]) -> None:
    """The seeds that detect variants find no failure in the unchanged program."""
    assert failure_of(RUNS[run], run[0]) == ""


def test_there_are_enough_variants() -> None:
    """The table has enough variants, and no name is used twice."""
    assert len({variant.name for variant in ALL}) == len(ALL)
    assert len(VARIANTS) >= BROKEN_ENOUGH
    assert len(CLUSTER_VARIANTS) >= BROKEN_CLUSTERS


def test_text_that_is_gone_is_noticed() -> None:
    """A variant whose text no longer occurs is an error, not a variant without effect."""
    with pytest.raises(LookupError, match="found it 0 times"):
        Variant("outdated", "core/tasks.py", "no such line", "").check()
