"""The summaries that clients read of a job that has ended."""

import pytest

from holdfast.core.lifecycle import CANCELED, DONE, FAILED
from holdfast.core.outcomes import result_summary


@pytest.mark.parametrize(
    ("state", "reason", "summary", "shown"),
    [
        (DONE, "", "", ""),
        (DONE, "", "fine", "fine"),
        (FAILED, "NO_LUCK", "", "NO_LUCK"),
        (FAILED, "NO_LUCK", "it rained", "it rained"),
        (CANCELED, "", "", "canceled; no reason was given"),
        (CANCELED, "", "not needed", "not needed"),
    ],
)
def test_summary_explains_every_end_but_a_success(state: int, reason: str, summary: str, shown: str) -> None:
    """The summary is the worker's or the canceller's, else the failure reason, else a text that none was given."""
    assert result_summary(state, reason=reason, summary=summary) == shown
