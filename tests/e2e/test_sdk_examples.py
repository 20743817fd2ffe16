"""The examples print the expected output when they are run as scripts."""

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

from tests.e2e.wait_until import DEADLINE_S, eventually


def run(root: Path, name: str, *words: str) -> str:
    """Runs an example that must log nothing, and returns its output."""
    out, log = run_logged(root, name, *words)
    assert log == ""
    return out


def run_logged(root: Path, name: str, *words: str) -> tuple[str, str]:
    """Runs an example and returns its output and its log."""
    command = [sys.executable, "-W", "error", str(root / "examples" / name), *words]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout, ended.stderr


def test_hello(root: Path, tmp_path: Path) -> None:
    """The smallest program prints its result and closes the directory."""
    assert run(root, "hello.py", str(tmp_path / "jobs")).endswith("Hello, world!\n")
    assert not (tmp_path / "jobs" / "holdfast.sock").exists()


def test_progress(root: Path) -> None:
    """The progress example prints progress during the job, and the reason of a canceled job."""
    lines = run(root, "progress.py").splitlines()
    assert any("step" in line for line in lines)
    assert "counted 3" in lines
    assert lines[-1].endswith("was canceled: long enough")


def test_retries(root: Path) -> None:
    """The retries example ends each kind of error as documented, and every failed attempt is logged."""
    out, log = run_logged(root, "retries.py")
    assert (log.count("'attempt_failed'"), log.count("'job_failed'")) == (3, 2)
    assert out.splitlines() == [
        "fine after 1 attempts",
        "flaky after 3 attempts",
        "busy after 2 attempts",
        "failed: PermanentError: 410 Gone",
        "failed: KeyError: 'a bug that a retry does not fix'",
    ]


def test_web_and_workers(root: Path, tmp_path: Path) -> None:
    """In the web example a request becomes a job, a worker process runs it, and the web process returns the result."""
    folder = root / "examples" / "web_and_workers"
    environment = {**os.environ, "JOBS": str(tmp_path / "jobs")}
    web = subprocess.Popen(
        [sys.executable, "web.py", "0"], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
    )
    worker = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "worker", "-A", "jobs:app"],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert web.stdout is not None
        address = web.stdout.readline().strip()
        accepted = get(f"{address}/resize?path=a.png&width=200")
        ended = eventually(lambda: get(address + accepted["job"]), lambda job: job["state"] == "DONE")
        assert ended["result"] == "a.png@200"
    finally:
        for process in (web, worker):
            process.terminate()
            process.communicate()


def get(url: str) -> dict[str, str]:
    with urllib.request.urlopen(url, timeout=DEADLINE_S) as response:  # noqa: S310 - a local server
        answer: dict[str, str] = json.load(response)
    return answer


def test_import_brings_nothing_heavy() -> None:
    """Importing the package or the app loads none of the optional libraries."""
    heavy = "{'asyncio', 'grpc', 'rich', 'typer', 'structlog', 'uvloop', 'google.protobuf'}"
    program = f"import sys, holdfast; from holdfast import Holdfast, Retry, current; print({heavy} & set(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "set()\n"
    light = "import sys, holdfast; print({'msgspec', 'asyncio'} & set(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", light], capture_output=True, text=True, check=True)
    assert ended.stdout == "set()\n"
