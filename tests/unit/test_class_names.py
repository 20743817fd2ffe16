"""A class name occurs once in the product, so that a name means one thing wherever it is read."""

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


def test_class_name_occurs_once(root: Path) -> None:
    """No two modules define a class of the same name, private classes included."""
    twice = {name: files for name, files in places_of_classes(sources(root)).items() if len(files) > 1}
    assert twice == {}


def test_second_class_of_a_name_is_found() -> None:
    """The check also finds a second class within a function or in another module."""
    files = {"a.py": "class Job: ...", "b.py": "def f():\n    class Job: ...", "proto/c_pb2.py": "class Job: ..."}
    assert places_of_classes(files) == {"Job": ["a.py", "b.py"]}
