"""docs/contract.md: every row of the contract names a test, and the topologies on which that test runs."""

import ast
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

LOCKS = 43
_ROW = re.compile(
    r"^\| (?P<id>[A-Z]+\d+) \|(?P<claim>.*?)\|(?: (?P<runs_on>all five|worker calls|its own) \|)?"
    r" (?P<shown>[^|]*?) *\|$",
    re.MULTILINE,
)
_TEST = re.compile(r"`(tests/[\w/.-]+\.py)::(\w+)`")
_COLLECTED = re.compile(r"(?P<file>tests/[\w/.-]+\.py)::(?P<name>\w+)(?:\[(?P<parameters>.*)\])?")
ALL_FIVE = frozenset({"embedded", "microservices", "monolith", "pipeline", "zookeeper"})
#: The topologies that serve `CoordinatorInternalService`.
WORKER_CALLS = frozenset({"embedded", "microservices", "monolith"})

#: The topologies of each test, by its file and name.
Topologies = Mapping[tuple[str, str], frozenset[str]]


@dataclass(frozen=True)
class Row:
    """One claim, the topologies of its tests if the document has that column, and the tests."""

    id: str
    claim: str
    runs_on: str
    shown: str


def rows_of(text: str) -> list[Row]:
    return [
        Row(found["id"], found["claim"].strip(), found["runs_on"] or "", found["shown"])
        for found in _ROW.finditer(text)
    ]


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
    """Returns the problem with the row, empty if there is none."""
    if not row.claim:
        return f"{row.id} claims nothing"
    named = _TEST.findall(row.shown)
    if not named or "planned" in row.shown:
        return f"{row.id} names no test"
    missing = [f"{file}::{name}" for file, name in named if name not in names_of_tests(root / file)]
    return f"{row.id} names tests that do not exist: {missing}" if missing else ""


def topologies_of(collected: str) -> Topologies:
    """Returns the topologies in the ids of collected tests."""
    found: dict[tuple[str, str], frozenset[str]] = {}
    for test in filter(None, map(_COLLECTED.fullmatch, collected.splitlines())):
        key, parameters = (test["file"], test["name"]), set((test["parameters"] or "").split("-"))
        found[key] = found.get(key, frozenset()) | (ALL_FIVE & parameters)
    return found


def expected_column(row: Row, topologies: Topologies) -> str:
    """Returns the right value of the column "runs on" of a row."""
    found = {topologies.get(test, frozenset()) for test in _TEST.findall(row.shown)}
    if ALL_FIVE in found:
        return "all five"
    return "worker calls" if WORKER_CALLS in found else "its own"


@pytest.fixture(scope="module")
def topologies(root: Path) -> Topologies:
    """The topologies of the contract's tests, as pytest collects them."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "tests/contract"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    return topologies_of(done.stdout)


@pytest.fixture(scope="module")
def rows(root: Path) -> list[Row]:
    return rows_of((root / "docs/contract.md").read_text())


def test_every_row_is_shown(root: Path, rows: list[Row]) -> None:
    """Every row of the contract names tests that exist."""
    assert [problem for row in rows if (problem := problem_with(row, root))] == []


def test_every_lock_has_a_row(rows: list[Row]) -> None:
    """All locks are listed in order, and no id is used twice."""
    ids = [row.id for row in rows]
    assert [id_ for id_ in ids if id_.startswith("L")] == [f"L{n}" for n in range(1, LOCKS + 1)]
    assert len(set(ids)) == len(ids)


def test_no_line_of_a_table_is_overlooked(root: Path, rows: list[Row]) -> None:
    """Each table line of the document is a row, a heading or a separator."""
    lines = [line for line in (root / "docs/contract.md").read_text().splitlines() if line.startswith("|")]
    others = [line for line in lines if line.startswith(("| id |", "|---"))]
    assert len(lines) == len(rows) + len(others)


def test_every_row_says_where_it_runs(rows: list[Row], topologies: Topologies) -> None:
    """The column "runs on" of each row matches the topologies of its collected tests."""
    wrong = {
        row.id: f"expected {expected!r}, the document says {row.runs_on!r}"
        for row in rows
        if (expected := expected_column(row, topologies)) != row.runs_on
    }
    assert wrong == {}


def test_contract_runs_on_all_topologies_or_on_those_with_worker_calls(topologies: Topologies) -> None:
    """Contract tests run on all topologies, except that tests of worker calls run on those that serve them."""
    odd = {
        f"{file}::{name}": sorted(found)
        for (file, name), found in topologies.items()
        if found and found != (WORKER_CALLS if file.endswith("/test_workers.py") else ALL_FIVE)
    }
    assert odd == {}


def test_stale_column_is_found() -> None:
    """A column that does not match the collected tests is found."""
    (row,) = rows_of("| X1 | a claim | all five | `tests/contract/test_x.py::test_x` |\n")
    collected = "\n".join(f"tests/contract/test_x.py::test_x[{name}-queued]" for name in sorted(WORKER_CALLS))
    assert expected_column(row, topologies_of(collected)) == "worker calls"
    assert expected_column(row, topologies_of("tests/contract/test_x.py::test_x")) == "its own"
    assert row.runs_on == "all five"


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
    (row,) = rows_of(f"| X1 | a claim | its own | {shown} |\n")
    assert problem_with(row, root) == problem
