"""A class name occurs once in the product and once in the laboratory, so that a name has one meaning."""

import ast
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from tests.unit.test_layers import sources

#: Generated: the messages and services of the contracts have their names on the wire.
GENERATED = "proto/"


def places_of_classes(files: Mapping[str, str]) -> dict[str, list[str]]:
    """The files that define each class name, also within other classes and functions."""
    found: dict[str, list[str]] = defaultdict(list)
    for file, text in files.items():
        if not file.startswith(GENERATED):
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.ClassDef):
                    found[node.name].append(file)
    return found


def repeated(files: Mapping[str, str]) -> dict[str, list[str]]:
    """The class names that are defined more than once."""
    return {name: places for name, places in places_of_classes(files).items() if len(places) > 1}


def test_class_name_occurs_once(root: Path) -> None:
    """No two modules define a class of the same name, private classes included."""
    assert repeated(sources(root)) == {}


def test_class_name_occurs_once_in_the_laboratory(root: Path) -> None:
    """No two modules of the laboratory define a class of the same name."""
    package = root / "lab/src/holdfast_lab"
    assert repeated({str(path.relative_to(package)): path.read_text() for path in package.rglob("*.py")}) == {}


def test_second_class_of_a_name_is_found() -> None:
    """The check also finds a second class within a function or in another module."""
    files = {"a.py": "class Job: ...", "b.py": "def f():\n    class Job: ...", "proto/c_pb2.py": "class Job: ..."}
    assert places_of_classes(files) == {"Job": ["a.py", "b.py"]}
