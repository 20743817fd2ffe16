"""ARCHITECTURE.md: its table of layers equals the rules, and the files that it names exist."""

import re
from pathlib import Path

from tests.unit.test_layers import EVERYTHING, RESERVED, RULES

LINES_MAX = 110
QUESTIONS = 10
_ROW = re.compile(r"^\| (?P<folders>`.*?) \| (?P<ours>.*?) \| (?P<never>.*?)\|$", re.MULTILINE)


def rows(root: Path) -> dict[str, set[str]]:
    """Returns what each folder may import, by the document; text after a semicolon is about a single file."""
    table = (root / "ARCHITECTURE.md").read_text().split("## The layers are the folders")[1].split("## Contracts")[0]
    return {
        folder: set(re.findall(r"`([\w.]+)`", found["ours"].split(";")[0]))
        for found in _ROW.finditer(table)
        for folder in re.findall(r"`([\w.]+)`", found["folders"])
    }


def rules() -> dict[str, set[str]]:
    """Returns what each folder may import beside itself, by the rules."""
    named = {rule.under.removesuffix("/").removesuffix(".py"): rule for rule in RULES if rule.ours != EVERYTHING}
    return {folder: set(rule.ours) - {folder} for folder, rule in named.items() if "/" not in folder}


def test_table_of_layers_is_that_of_the_rules(root: Path) -> None:
    """Every folder with a rule has a row in the document that lists the same imports."""
    documented = rows(root)
    assert {folder: documented.get(folder) for folder in rules()} == rules()


def test_every_folder_has_a_row(root: Path) -> None:
    """Every folder and module of the package has a row in the document."""
    package = root / "src" / "holdfast"
    # A folder that was moved away leaves its cache behind.
    found = [path for path in package.iterdir() if path.suffix == ".py" or any(path.glob("*.py"))]
    parts = {path.stem for path in found if not path.stem.startswith("_")}
    assert parts == set(rows(root))
    assert set(RESERVED) <= parts


def test_every_path_that_is_named_exists(root: Path) -> None:
    """A path in the document is one of the repository, of the package, or of a folder in it."""
    named = re.findall(r"`([\w./*]+(?:/|\.py|\.proto)[\w./*]*)`", (root / "ARCHITECTURE.md").read_text())
    patterns = {path.replace("NAME", "*").removesuffix("/") for path in named}
    assert len(patterns) > 50
    package = root / "src" / "holdfast"
    assert [path for path in patterns if not (any(package.rglob(path)) or any(root.glob(path)))] == []


def test_ten_questions_have_an_answer(root: Path) -> None:
    """The table "Where do I change …?" has ten rows."""
    table = (root / "ARCHITECTURE.md").read_text().split("## Where do I change …?")[1].split("## Contracts")[0]
    assert len(re.findall(r"^\| (?!change ).*\|$", table, re.MULTILINE)) == QUESTIONS


def test_architecture_stays_on_a_page(root: Path) -> None:
    """ARCHITECTURE.md stays short enough to be read as a whole."""
    assert len((root / "ARCHITECTURE.md").read_text().splitlines()) <= LINES_MAX
