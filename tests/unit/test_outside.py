"""The external interface of the product does not change by accident."""

import pytest

from tests.unit.outside import GOLDEN, outside


@pytest.mark.parametrize("name", ["reasons.txt", "log-events.txt", "metrics.txt", "openapi.json"])
def test_outside_is_as_it_was_written_down(name: str) -> None:
    """Reasons, log events, metrics and the HTTP API equal the golden files of `tests.unit.outside`."""
    expected = (GOLDEN / name).read_text().splitlines()
    found = outside()[name].splitlines()
    assert sorted(set(found) - set(expected)) == [], "in the code, but not in the golden file"
    assert sorted(set(expected) - set(found)) == [], "in the golden file, but not in the code"
    assert found == expected
