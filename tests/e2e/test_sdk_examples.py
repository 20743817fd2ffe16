"""The examples do what they say, run as people run them."""

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

from tests.e2e.waiting import DEADLINE_S, eventually


def run(root: Path, name: str, *words: str) -> str:
    """The output of an example that logs nothing."""
    out, log = run_logged(root, name, *words)
    assert log == ""
    return out


def run_logged(root: Path, name: str, *words: str) -> tuple[str, str]:
    """The output and the log of an example."""
    command = [sys.executable, "-W", "error", str(root / "examples" / name), *words]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout, ended.stderr


def test_hello(root: Path, tmp_path: Path) -> None:
    """The smallest program prints the job's id and its result, and leaves the directory closed."""
    assert run(root, "hello.py", str(tmp_path / "jobs")).endswith("Hello, world!\n")
    assert not (tmp_path / "jobs" / "holdfast.sock").exists()


def test_progress(root: Path) -> None:
    """Progress is seen while the job runs, and a job that is canceled says so."""
    lines = run(root, "progress.py").splitlines()
    assert any("step" in line for line in lines)
    assert "counted 3" in lines
    assert lines[-1].endswith("was canceled: long enough")


def test_retries(root: Path) -> None:
    """Each kind of error ends as the example says, and every failed attempt is logged."""
    out, log = run_logged(root, "retries.py")
    assert (log.count("'attempt_failed'"), log.count("'job_failed'")) == (3, 2)
    assert out.splitlines() == [
        "fine after 1 attempts",
        "flaky after 3 attempts",
        "busy after 2 attempts",
        "failed: PermanentError: 410 Gone",
        "failed: KeyError: 'a mistake that no second try mends'",
    ]


def test_web_and_workers(root: Path, tmp_path: Path) -> None:
    """A request becomes a job, a worker process runs it, and the web process tells the result."""
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
    with urllib.request.urlopen(url, timeout=DEADLINE_S) as response:  # noqa: S310 - our own server
        answer: dict[str, str] = json.load(response)
    return answer


def test_import_brings_nothing_heavy() -> None:
    """Importing the package, and even the app, loads none of the libraries that only some programs need."""
    heavy = "{'asyncio', 'grpc', 'rich', 'typer', 'structlog', 'uvloop', 'google.protobuf'}"
    program = f"import sys, holdfast; from holdfast import Holdfast, Retry, current; print({heavy} & set(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "set()\n"
    light = "import sys, holdfast; print({'msgspec', 'asyncio'} & set(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", light], capture_output=True, text=True, check=True)
    assert ended.stdout == "set()\n"
