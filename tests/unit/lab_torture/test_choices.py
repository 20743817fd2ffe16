"""Values of the command-line options of a torture."""

from collections.abc import Callable

import pytest

from holdfast.errors import InvalidArgumentError
from holdfast_lab.torture.campaign import checked_minutes, checked_topology, faults_of
from holdfast_lab.torture.faults import FAULTS


@pytest.mark.parametrize("minutes", [float("nan"), float("inf"), -1.0, 0.0, 1e9])
def test_minutes_that_never_end_or_never_begin_are_refused(minutes: float) -> None:
    """Infinite, negative, zero and not-a-number minutes are refused, and the error names the expected range."""
    with pytest.raises(InvalidArgumentError, match=r"--minutes must be a number from 0\.05 to 10080, got"):
        checked_minutes(minutes)


def test_minutes_may_be_few() -> None:
    """A few seconds are allowed."""
    assert checked_minutes(0.05) == 0.05


def test_faults_are_named_once_each_or_all_or_none() -> None:
    """Faults are a comma-separated list without duplicates, all, or none."""
    assert faults_of("all") == tuple(FAULTS)
    assert (faults_of("kill, stop,,kill"), faults_of("")) == (("kill", "stop"), ())


@pytest.mark.parametrize(
    ("choose", "text"), [(faults_of, "kill,nonsense"), (checked_topology, "nonsense"), (checked_topology, "")]
)
def test_error_for_an_unknown_name_lists_all_names(choose: Callable[[str], object], text: str) -> None:
    """The error for an unknown name lists all valid names."""
    with pytest.raises(InvalidArgumentError, match=r"--(faults|topology) must be .*(kill|embedded), .*; got"):
        choose(text)
