"""Child processes of the server import nothing from the working directory."""

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.e2e.fleet import Fleet, Program, clean_environment
from tests.e2e.test_snapshots import SMALL, snapshots, work_until
from tests.postgres import require_postgres
from tests.zookeeper import require_zookeeper

#: Modules that every process of the product imports.
NAMES = ("calendar", "json", "asyncio", "logging", "msgspec", "struct", "zlib")

#: Topologies that need an engine, and what skips their tests without it.
REQUIRED: Mapping[str, Callable[[], object]] = {"pipeline": require_postgres, "zookeeper": require_zookeeper}


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A directory with modules that log their import and the importing process."""
    folder = tmp_path / "trap"
    folder.mkdir()
    for name in NAMES:
        words = f"'{name}: ' + ' '.join(sys.orig_argv) + chr(10)"
        (folder / f"{name}.py").write_text(f"import sys\nopen({str(tmp_path / 'imported')!r}, 'a').write({words})\n")
    return folder


def imported(trap: Path) -> str:
    """Returns the lines that the modules of the trap have logged."""
    marker = trap.parent / "imported"
    return marker.read_text() if marker.exists() else ""


def start(fleet: Fleet, trap: Path, *arguments: str) -> Program:
    """Runs the installed command in the trap; unlike `python -m`, it does not put the working directory on the path."""
    command = [str(Path(sys.executable).with_name("holdfast")), *arguments]
    with (fleet.folder / "adopted.out").open("wb") as out, (fleet.folder / "adopted.log").open("wb") as log:
        return fleet.adopt(
            subprocess.Popen(
                command, cwd=trap, env=clean_environment({}), stdin=subprocess.DEVNULL, stdout=out, stderr=log
            )
        )


def test_snapshot_process_imports_nothing_from_the_working_directory(fleet: Fleet, trap: Path, tmp_path: Path) -> None:
    """The snapshot process does not execute modules in the server's working directory."""
    data = tmp_path / "data"
    server = start(fleet, trap, "server", "--data", str(data), "--port", "0", *SMALL)
    work_until(fleet.wire(server.ready()["grpc"]), lambda: snapshots(data) or imported(trap))
    assert imported(trap) == ""


@pytest.mark.parametrize("topology", ["embedded", "microservices", "monolith", "pipeline", "zookeeper"])
def test_roles_import_nothing_from_the_working_directory(
    fleet: Fleet, trap: Path, tmp_path: Path, topology: str
) -> None:
    """No role of a topology executes a module in its working directory."""
    REQUIRED.get(topology, lambda: None)()
    nodes = ("--nodes", "2") if topology == "monolith" else ()
    up = start(fleet, trap, "up", "--topology", topology, "--data", str(tmp_path / "data"), "--port", "0", *nodes)
    up.ready()
    assert up.stop() == 0
    assert imported(trap) == ""
