"""The container engine of these tests: it runs in isolation, and leaves nothing behind."""

import contextlib
from pathlib import Path

from tests.deploy.engine import Engine, engine_running


def processes_of(engine: Engine) -> list[int]:
    """Returns every process that has the engine's folder in its command line."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # the process has ended meanwhile
            if engine.folder.name.encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def traces_of(engine: Engine) -> list[Path]:
    """Returns the engine's folder and cgroups, if they exist."""
    folders = [engine.folder] if engine.folder.exists() else []
    return [*folders, *Path("/sys/fs/cgroup").glob(f"**/{engine.folder.name}")]


def test_an_engine_leaves_nothing() -> None:
    """An engine's network and mounts are not visible on the machine, and its processes and files end with it."""
    with engine_running() as engine:
        network = engine.docker("network", "create", "of-its-own")
        assert not Path(f"/sys/class/net/br-{network[:12]}").exists()
        assert "/run/engine" not in Path("/proc/self/mounts").read_text()
        assert processes_of(engine)
        assert traces_of(engine)
    assert processes_of(engine) == []
    assert traces_of(engine) == []
