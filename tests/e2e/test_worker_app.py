"""`holdfast worker -A` with an app that cannot be loaded."""

from pathlib import Path

import pytest

from holdfast.errors import ExitCode
from tests.e2e.fleet import Fleet

BROKEN = "def load():\n    raise RuntimeError('no database')\n\nload()\n"


@pytest.fixture
def fleet(loaded_fleet: Fleet) -> Fleet:
    """A fleet whose processes are forked from the preloaded program."""
    return loaded_fleet


@pytest.mark.parametrize(
    ("app", "said"),
    [
        ("nowhere:app", "there is no module 'nowhere' in {folder} or among the installed packages"),
        ("broken", "app must be module:attribute, such as shop:app for app in shop.py, got 'broken'"),
        ("empty:app", "the module 'empty' ({folder}/empty.py) has no 'app'"),
        ("empty:number", "'empty:number' must be an app, got int"),
        ("lacking:app", "ModuleNotFoundError: No module named 'not_installed'"),
        ("broken:app", "RuntimeError: no database"),
        ("leaving:app", "importing 'leaving' failed:"),
    ],
)
def test_app_that_cannot_be_had_is_explained(fleet: Fleet, tmp_path: Path, app: str, said: str) -> None:
    """A worker whose app cannot be loaded names the searched place, or prints the traceback of the user's own code."""
    (tmp_path / "empty.py").write_text("number = 1\n")
    (tmp_path / "lacking.py").write_text("import not_installed\n")
    (tmp_path / "broken.py").write_text(BROKEN)
    (tmp_path / "leaving.py").write_text("raise SystemExit(0)\n")
    worker = fleet.start("worker", "-A", app, "--connect", "127.0.0.1:1")
    assert worker.wait() == ExitCode.USAGE
    assert said.format(folder=tmp_path) in worker.log
    assert "holdfast/worker" not in worker.log
    if app == "broken:app":
        assert 'broken.py", line 2, in load' in worker.log


def test_jobs_in_processes_need_an_app(fleet: Fleet) -> None:
    """A worker without an app accepts --isolation process, which does not affect the built-in coroutines."""
    _, wire = fleet.server()
    worker = fleet.worker(wire.target, "--isolation", "process")
    assert wire.wait_for(wire.new()).failure_reason == ""
    assert worker.stop() == 0
