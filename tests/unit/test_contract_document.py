"""docs/contract.md: every row of the contract is shown by a test."""

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

LOCKS = 43
_ROW = re.compile(r"^\| (?P<id>[A-Z]+\d+) \|(?P<claim>.*)\| (?P<shown>[^|]*?) *\|$", re.MULTILINE)
_TEST = re.compile(r"`(tests/[\w/.-]+\.py)::(\w+)`")


@dataclass(frozen=True)
class Row:
    """One claim of the contract and what stands in its last column."""

    id: str
    claim: str
    shown: str


def rows_of(text: str) -> list[Row]:
    return [Row(found["id"], found["claim"].strip(), found["shown"]) for found in _ROW.finditer(text)]


@cache
def names_of_tests(path: Path) -> frozenset[str]:
    if not path.exists():
        return frozenset()
    nodes = ast.walk(ast.parse(path.read_text()))
    return frozenset(
        node.name
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    )


def problem_with(row: Row, root: Path) -> str:
    """What is wrong with the row; empty when it keeps the rules."""
    if not row.claim:
        return f"{row.id} claims nothing"
    named = _TEST.findall(row.shown)
    if not named or "planned" in row.shown:
        return f"{row.id} names no test"
    missing = [f"{file}::{name}" for file, name in named if name not in names_of_tests(root / file)]
    return f"{row.id} names tests that do not exist: {missing}" if missing else ""


@pytest.fixture(scope="module")
def rows(root: Path) -> list[Row]:
    return rows_of((root / "docs/contract.md").read_text())


def test_every_row_is_shown(root: Path, rows: list[Row]) -> None:
    """No row lacks a test that exists."""
    assert [problem for row in rows if (problem := problem_with(row, root))] == []


def test_every_lock_has_a_row(rows: list[Row]) -> None:
    """All locks are listed, in order, and no id is used twice."""
    ids = [row.id for row in rows]
    assert [id_ for id_ in ids if id_.startswith("L")] == [f"L{n}" for n in range(1, LOCKS + 1)]
    assert len(set(ids)) == len(ids)


def test_no_line_of_a_table_is_overlooked(root: Path, rows: list[Row]) -> None:
    """Each line of a table in the document is a row, a heading or a rule between the two."""
    lines = [line for line in (root / "docs/contract.md").read_text().splitlines() if line.startswith("|")]
    others = [line for line in lines if line.startswith(("| id |", "|---"))]
    assert len(lines) == len(rows) + len(others)


@pytest.mark.parametrize(
    ("shown", "problem"),
    [
        ("`tests/unit/test_contract_document.py::test_every_lock_has_a_row`", ""),
        ("planned: some day", "X1 names no test"),
        ("", "X1 names no test"),
        ("tested by hand", "X1 names no test"),
        (
            "`tests/unit/test_no.py::test_x`",
            "X1 names tests that do not exist: ['tests/unit/test_no.py::test_x']",
        ),
    ],
)
def test_rows_without_proof_are_found(root: Path, shown: str, problem: str) -> None:
    """A row without an existing test is a problem that names the row."""
    (row,) = rows_of(f"| X1 | a claim | {shown} |\n")
    assert problem_with(row, root) == problem
