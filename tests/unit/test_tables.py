"""URL schemes, topologies and commands are rows of one table each, and only these tables name a topology's modules."""

import ast
import re
from pathlib import Path
from pkgutil import resolve_name

import pytest

from holdfast.cli.command_table import COMMANDS
from holdfast.sdk.url_schemes import SCHEMES
from holdfast.settings import FIELDS, Settings, choices
from holdfast.topologies.table import NAMES, TOPOLOGIES, declared
from holdfast_lab.compare.topologies import TOPOLOGIES as COMPARED
from holdfast_lab.torture.arenas import TOPOLOGIES as TORTURED
from tests.contract.served import Topology
from tests.unit.test_layers import imports, is_within, sources

TABLES = frozenset({"cli/command_table.py", "sdk/url_schemes.py", "topologies/table.py"})
#: Commands, dashboards and tests use the embedded topology where there is no server, so it cannot be deleted.
USERS_OF_EMBEDDED = frozenset({"cli/connection.py", "cli/server.py", "testing/clock.py", "topologies/dashboard.py"})


def references(file: str, text: str, package: str) -> list[str]:
    """Every import of a module of the package, and every string that names one."""
    strings = [
        node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant) and type(node.value) is str
    ]
    return [name for name in (*imports(file, text), *strings) if is_within(name.partition(":")[0], package)]


@pytest.mark.parametrize("name", NAMES)
def test_only_tables_name_the_modules_of_a_topology(root: Path, name: str) -> None:
    """No other file imports a topology, so that deleting its folder and its rows removes it."""
    package = f"holdfast.topologies.{name}"
    users = {
        file
        for file, text in sources(root).items()
        if not file.startswith(f"topologies/{name}/") and references(file, text, package)
    }
    assert users - TABLES == (USERS_OF_EMBEDDED if name == "embedded" else frozenset())
    assert "topologies/table.py" in users


@pytest.mark.parametrize(
    "text",
    [
        "from holdfast.topologies.pipeline.up import serve",
        "from holdfast.topologies import pipeline",
        "def f():\n    import holdfast.topologies.pipeline.up",
        'resolve_name("holdfast.topologies.pipeline.up:serve")',
    ],
)
def test_reference_to_a_topology_is_found(text: str) -> None:
    """The check finds imports and strings at any place in a file."""
    assert len(references("cli/server.py", text, "holdfast.topologies.pipeline")) == 1
    assert references("cli/server.py", text, "holdfast.topologies.zookeeper") == []


def test_tables_import_no_topology(root: Path) -> None:
    """Rows name modules as text, so that a process loads only the topology that it needs."""
    files = sources(root)
    found = [name for file in TABLES for name in imports(file, files[file]) if is_within(name, "holdfast.topologies")]
    assert found == []


def test_every_entry_of_every_row_can_be_loaded() -> None:
    """The programs, declarations, openers, places and commands of all rows can be loaded."""
    targets = [
        *(target for entry in TOPOLOGIES for target in (entry.program, entry.capabilities)),
        *(target for scheme in SCHEMES for target in (scheme.opener, scheme.place) if target),
        *(entry.target for entry in COMMANDS if entry.target),
    ]
    assert all(resolve_name(target) is not None for target in targets)


def test_every_topology_of_the_table_can_be_set() -> None:
    """The setting takes the names of the table, its default is one of them, and rows name known settings."""
    assert choices("topology") == NAMES
    assert Settings().topology in NAMES
    assert {name for entry in TOPOLOGIES for name in (*entry.settings, *entry.defaults)} <= set(FIELDS)


def test_every_topology_is_tested_compared_and_documented(root: Path) -> None:
    """The tests of the frozen contract, the lab and the documents know every topology."""
    tortured_by_make = re.findall(r"\$\(or \$\(TOPOLOGY\),([a-z ]+)\)", (root / "Makefile").read_text())
    known = {
        "`Topology` of tests/contract/served.py": {topology.value for topology in Topology},
        "`TOPOLOGIES` of lab/src/holdfast_lab/compare/topologies.py": set(COMPARED),
        "`_MAKERS` of lab/src/holdfast_lab/torture/arenas/__init__.py": set(TORTURED),
        "the target `torture` of the Makefile": set(tortured_by_make[0].split()),
        # The other documents are about the embedded topology.
        "docs/topologies/": {path.stem for path in (root / "docs/topologies").glob("*.md")} | {"embedded"},
    }
    missing = {where: sorted(set(NAMES) - names) for where, names in known.items() if set(NAMES) - names}
    assert missing == {}, "add these topologies there; CONTRIBUTING.md has the steps"


def test_every_topology_has_a_folder_and_a_declaration_of_its_own(root: Path) -> None:
    """The table lists exactly the folders with a program, and no two topologies declare the same name."""
    folders = [path.parent.name for path in (root / "src/holdfast/topologies").glob("*/up.py")]
    assert sorted(folders) == sorted(NAMES)
    assert len({one.backend for one in declared()}) == len(NAMES)
