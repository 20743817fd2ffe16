"""The engine of these tests: there where it can be, and gone afterwards."""

import contextlib
from pathlib import Path

from tests.deploy.engine import Engine, engine_running


def processes_of(engine: Engine) -> list[int]:
    """Every process that names the engine's folder in its command."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            if engine.folder.name.encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def traces_of(engine: Engine) -> list[Path]:
    """What is on disk or in the system of an engine: its folder, and its groups of processes."""
    folders = [engine.folder] if engine.folder.exists() else []
    return [*folders, *Path("/sys/fs/cgroup").glob(f"**/{engine.folder.name}")]


def test_an_engine_leaves_nothing() -> None:
    """Its network and its mounts are never the machine's, and its processes and files end with it."""
    with engine_running() as engine:
        network = engine.docker("network", "create", "of-its-own")
        assert not Path(f"/sys/class/net/br-{network[:12]}").exists()
        assert "/run/engine" not in Path("/proc/self/mounts").read_text()
        assert processes_of(engine)
        assert traces_of(engine)
    assert processes_of(engine) == []
    assert traces_of(engine) == []
