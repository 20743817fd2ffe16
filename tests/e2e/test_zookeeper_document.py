"""docs/topologies/zookeeper.md: its examples work, and the tests that it names exist."""

import re
from pathlib import Path

import pytest

from tests.e2e.documents import reader_of
from tests.zookeeper import require_zookeeper

NAME = "docs/topologies/zookeeper.md"


@pytest.mark.slow
def test_examples_of_the_document_work(root: Path, tmp_path: Path) -> None:
    """The examples of the document work when they are run one after the other."""
    require_zookeeper()
    with reader_of(root / NAME, tmp_path) as reader:
        assert reader.run() > 0


def test_every_test_that_is_named_exists(root: Path) -> None:
    """Every test that the document names for a race exists."""
    folder = root / "tests/integration/zookeeper"
    code = "".join(path.read_text() for path in folder.glob("test_*.py"))
    named = set(re.findall(r"`(test_\w+)`", (root / NAME).read_text()))
    assert len(named) > 10
    assert [name for name in named if f"def {name}(" not in code] == []
