"""Jobs in child processes of a worker inside a user's program."""

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.errors import InvalidArgumentError
from tests.e2e.wait_until import DEADLINE_S

PROGRAM = """
import os
from holdfast import Holdfast, JobFailedError

app = Holdfast("memory://")

@app.job(isolation="process")
def pid(crash: bool = False) -> int:
    if crash:
        os._exit(9)
    return os.getpid()

@app.job(isolation="process")
def misfit() -> int:
    return "seven"

if __name__ == "__main__":
    with app, app.worker(slots=1):
        print(pid.submit().result(timeout_s=60) != os.getpid())
        try:
            pid.submit(crash=True).result(timeout_s=60)
        except JobFailedError as error:
            print(error.reason)
        print(pid.submit().result(timeout_s=60) != os.getpid())
        try:
            misfit.submit().result(timeout_s=60)
        except JobFailedError as error:
            print(error.reason)
"""


def test_job_that_kills_its_process_fails_alone(tmp_path: Path) -> None:
    """A job that kills its child process fails, and the program and its other jobs continue."""
    (tmp_path / "shop.py").write_text(PROGRAM)
    command = [sys.executable, "shop.py"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    *lines, misfit = ended.stdout.splitlines()
    assert lines == ["True", "PROCESS_DIED: exited with status 9", "True"], ended.stderr
    assert misfit.startswith("RESULT_TYPE_MISMATCH: ")
    assert "got str: 'seven'" in misfit


def test_app_that_no_process_can_import_says_so() -> None:
    """A worker refuses to start with process jobs if its app is not a variable of a module."""
    with Holdfast("memory://") as app:
        app.job(isolation="process")(test_app_that_no_process_can_import_says_so)
        with pytest.raises(InvalidArgumentError, match="app_path="):
            app.worker().start()


def test_coroutine_has_no_process() -> None:
    """An app refuses process isolation for a coroutine, which runs on the worker's loop."""

    async def work() -> None: ...

    with pytest.raises(InvalidArgumentError, match="coroutine"):
        Holdfast("memory://").job(isolation="process")(work)
    with pytest.raises(InvalidArgumentError, match="isolation"):
        Holdfast("memory://").job(isolation="moon")(work)
