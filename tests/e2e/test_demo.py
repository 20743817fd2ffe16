"""`make demo`: its output is correct, and it leaves no files and no processes."""

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from holdfast import Job, JobView, State
from holdfast_lab.demo import plan
from holdfast_lab.demo.jobs import app
from tests.e2e.fleet import clean_environment
from tests.e2e.wait_until import DEADLINE_S, eventually

DEMO = (sys.executable, "-m", "holdfast_lab.demo")


@contextmanager
def demo(folder: Path, output: int) -> Iterator[subprocess.Popen[bytes]]:
    """Starts the demo with this folder for its directory, and kills it on exit."""
    environment = clean_environment({"TMPDIR": str(folder), "TERM": "xterm", "COLUMNS": "120", "PYTHONUNBUFFERED": "1"})
    process = subprocess.Popen(DEMO, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def left_behind(folder: Path) -> list[str]:
    """Returns the files of the demo, and the processes with its folder in their environment."""
    processes = [str(path) for path in Path("/proc").glob("[0-9]*") if speaks_of(path, folder)]
    return [*(str(path) for path in folder.iterdir()), *processes]


def speaks_of(process: Path, folder: Path) -> bool:
    try:
        return f"DEMO_DATA={folder}".encode() in (process / "environ").read_bytes()
    except OSError:  # the process has ended or belongs to another user
        return False


def workers_ready(log: Path) -> bool:
    return "Why does the report not run?" in log.read_text()


class Shown(NamedTuple):
    """The outputs of two demos, and the files and processes that they left."""

    plain: str
    drawn: str
    left: list[str]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """Runs two demos concurrently, because they mostly wait: one into a file, one on a terminal."""
    folder, place = tmp_path_factory.mktemp("demo"), tmp_path_factory.mktemp("place")
    master, slave = pty.openpty()
    with (folder / "out").open("wb") as out, demo(place, out.fileno()) as plain, demo(place, slave) as drawn:
        os.close(slave)
        text = b"".join(iter(lambda: read(master), b"")).decode()
        assert drawn.wait(DEADLINE_S) == 0, text
        assert plain.wait(DEADLINE_S) == 0, (folder / "out").read_text()
    os.close(master)
    return Shown((folder / "out").read_text(), text, left_behind(place))


def read(terminal: int) -> bytes:
    """Returns the next part of the output; empty once the other end is closed."""
    try:
        return os.read(terminal, 65_536)
    except OSError:
        return b""


@pytest.mark.slow
def test_demo_shows_a_recovered_job_and_leaves_nothing(shown: Shown) -> None:
    """Without a terminal the demo prints plain lines, shows a lost lease and the second grant, and leaves nothing."""
    assert "\x1b" not in shown.plain
    assert re.search(r"granted.*\n(?:.*progress.*\n)*.*lease lost.*disconnected.*\n.*granted.*RUNNING", shown.plain)
    assert "ZeroDivisionError" in shown.plain
    assert "Everything is as expected" in shown.plain
    assert shown.left == []


@pytest.mark.slow
def test_demo_draws_bars_on_a_terminal(shown: Shown) -> None:
    """On a terminal the demo draws a bar for each kind of job."""
    assert "\x1b[" in shown.drawn
    assert "24/24" in shown.drawn


@pytest.mark.slow
def test_interrupted_demo_leaves_nothing(tmp_path: Path) -> None:
    """Ctrl-C ends the demo's workers and removes its directory."""
    place = tmp_path / "place"
    place.mkdir()
    log = tmp_path / "out"
    with log.open("wb") as out, demo(place, out.fileno()) as process:
        eventually(lambda: workers_ready(log), what="the first line of the running demo")
        assert len(left_behind(place)) >= 2, "expected the directory and a running worker"
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 130, log.read_text()
    assert "Traceback" not in log.read_text()
    # A child process that a worker has just started ends by itself when it notices the worker's death.
    eventually(lambda: left_behind(place), lambda left: not left, "the end of all that was started")


def test_demo_reports_unexpected_outcomes_as_problems(tmp_path: Path) -> None:
    """The demo reports a job in an unexpected state, a missing retry and a missing recovery as problems."""
    with app:
        submitted = plan.submit(tmp_path)
        seen = {job.id: job.seen for job in app.find() if job.seen}
        right = {job.id: ended(job, seen[job.id], submitted) for job in plan.all_jobs(submitted.groups)}
        assert len(plan.problems(submitted, right, "anna")) == 1, "expected one problem: no worker was killed"
        broken = {**right, submitted.flaky.id: msgspec.structs.replace(right[submitted.flaky.id], failures=0)}
        assert len(plan.problems(submitted, broken, "anna")) == 2
        assert len(plan.problems(submitted, seen, "anna")) > len(right)


def ended(job: Job[object], view: JobView, submitted: plan.DemoPlan) -> JobView:
    """Returns the job in its expected terminal state."""
    expected = next(group.expected for group in submitted.groups if job in group.jobs)
    failures = 2 if job == submitted.flaky else 0
    return msgspec.structs.replace(view, state=State(expected), failures=failures)
