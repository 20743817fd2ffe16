"""The external interface of the product does not change by accident."""

import pytest

from tests.unit.outside import GOLDEN, outside

REMEDY = "if users should see this change, write the golden files with `python -m tests.unit.outside`"


@pytest.mark.parametrize("name", ["reasons.txt", "log-events.txt", "metrics.txt", "openapi.json"])
def test_outside_is_as_it_was_written_down(name: str) -> None:
    """Reasons, log events, metrics and the HTTP API equal the golden files of `tests.unit.outside`."""
    expected = (GOLDEN / name).read_text().splitlines()
    found = outside()[name].splitlines()
    assert sorted(set(found) - set(expected)) == [], f"in the code, but not in the golden file; {REMEDY}"
    assert sorted(set(expected) - set(found)) == [], f"in the golden file, but not in the code; {REMEDY}"
    assert found == expected, REMEDY
