"""docs/guarantees.md: every guarantee names tests that exist."""

from pathlib import Path

from tests.unit.test_contract_document import problem_with, rows_of


def test_every_promise_is_shown_by_a_test(root: Path) -> None:
    """Each row of the guarantees names tests that exist."""
    rows = rows_of((root / "docs/guarantees.md").read_text())
    assert [row.id for row in rows] == [f"G{number}" for number in range(1, len(rows) + 1)]
    assert rows
    assert [problem for row in rows if (problem := problem_with(row, root))] == []
