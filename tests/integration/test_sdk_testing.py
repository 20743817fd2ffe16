"""The tools for users' tests: apps in memory, a clock that the test moves, and jobs that run on request."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast import Backoff, Holdfast, Job, NoWorkerError, State, current
from holdfast.errors import FailedPreconditionError, InvalidArgumentError
from holdfast.sdk.worker_check import ATTENDED_S
from holdfast.testing import ManualClock, arun_jobs, in_memory, run_jobs
from holdfast.testing.fixtures import memory_app

WAIT_S = 30


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def app(clock: ManualClock) -> Iterator[Holdfast]:
    with memory_app(clock) as opened:
        yield opened


def test_due_jobs_run_when_told_to(app: Holdfast) -> None:
    """`run_jobs` runs due jobs, and the jobs that they submit, on the test's own thread until none is due."""
    order = []

    @app.job
    def outer(n: int) -> int:
        order.append(("outer", n))
        inner.submit(n + 1)
        current().progress(0.5, "half")
        return n

    @app.job(isolation="process")
    def inner(n: int) -> None:
        order.append(("inner", n))

    job = outer.submit(1)
    assert job.status() is State.QUEUED
    assert run_jobs(app) == 2
    assert order == [("outer", 1), ("inner", 2)]
    assert job.result(timeout_s=0) == 1
    assert run_jobs(app) == 0


def test_advance_makes_delays_and_retries_due(app: Holdfast, clock: ManualClock) -> None:
    """Time passes only when the test moves the clock, and jobs that become due can run at once."""
    tries = []

    @app.job(max_attempts=3, backoff=Backoff.fixed(60))
    async def flaky() -> int:
        tries.append(current().attempt)
        if len(tries) < 3:
            raise OSError("again")
        return len(tries)

    job = flaky.with_options(delay_s=30 * 86_400).submit()
    assert run_jobs(app) == 0
    clock.advance(30 * 86_400)
    assert run_jobs(app) == 1
    assert run_jobs(app) == 0
    clock.advance(60)
    assert run_jobs(app) == 1
    clock.advance(60)
    assert run_jobs(app) == 1
    assert job.result(timeout_s=0) == 3
    assert tries == [1, 2, 3]


def test_advance_lets_leases_run_out(app: Holdfast, clock: ManualClock) -> None:
    """A job whose worker sends no heartbeat is granted to another when the test moves the clock past its lease."""
    from holdfast.testing.clock import memory_of  # noqa: PLC0415 - only one test needs it

    @app.job
    def work() -> int:
        return current().attempt

    async def take() -> object:
        serving = memory_of(app.connection)
        return await serving.core.work.fetch("silent", frozenset({"work"}))

    job = work.submit()
    assert app.connection.portal().run(take) is not None
    assert run_jobs(app) == 0
    clock.advance(31)
    assert run_jobs(app) == 1
    assert job.result(timeout_s=0) == 2


def test_program_s_own_app_is_lent_to_a_test(tmp_path: Path) -> None:
    """Inside the block an app of a directory keeps its jobs in memory, and afterwards in its directory again."""
    app = Holdfast(tmp_path / "jobs")

    @app.job
    def work() -> str:
        return "done"

    with in_memory(app):
        job = work.submit()
        assert run_jobs(app) == 1
        assert job.result(timeout_s=0) == "done"
        assert not (tmp_path / "jobs").exists()
    with app:
        assert list(app.find()) == []
        with pytest.raises(InvalidArgumentError, match="memory"):
            run_jobs(app)


def test_result_that_no_worker_will_make_is_an_error(app: Holdfast) -> None:
    """Without a timeout and a worker in this process, `result()` fails and names the call to make instead."""

    @app.job
    def work() -> int:
        return 1

    job = work.submit()
    with pytest.raises(NoWorkerError, match=r"app.worker\(\).*run_jobs\(app\)"):
        job.result()
    with pytest.raises(NoWorkerError):
        asyncio.run(_awaited(job))
    run_jobs(app)
    assert job.result() == 1


async def _awaited(job: Job[int]) -> int:
    return await job


def test_result_after_the_last_worker_has_ended_is_an_error(app: Holdfast) -> None:
    """`result()` fails after the last worker has stopped and after `run_jobs` has returned."""

    @app.job
    def work() -> int:
        return 1

    with app.worker():
        assert work.submit().result() == 1
    run_jobs(app)
    with pytest.raises(NoWorkerError):
        work.submit().result()


def test_result_waits_for_a_worker_that_was_made(app: Holdfast) -> None:
    """`result()` waits for a worker that was created and has not started yet."""

    @app.job
    def work() -> int:
        return 1

    worker = app.worker()
    job, looked = work.submit(), threading.Event()

    def start() -> None:
        looked.wait(WAIT_S)
        worker.start()

    thread = threading.Thread(target=start)
    thread.start()
    with ThreadPoolExecutor() as pool:
        result = pool.submit(job.result)
        with pytest.raises(TimeoutError):
            result.result(2 * ATTENDED_S)
        looked.set()
        assert result.result(WAIT_S) == 1
    thread.join()
    worker.stop()


def test_endless_jobs_are_noticed(app: Holdfast) -> None:
    """Jobs that submit themselves without end make `run_jobs` fail instead of hanging."""

    @app.job
    def again() -> None:
        again.submit()

    again.submit()
    with pytest.raises(FailedPreconditionError, match="still"):
        run_jobs(app, attempts_max=10)


async def test_jobs_run_beside_an_event_loop(app: Holdfast) -> None:
    """A test on an event loop can run jobs, including coroutines."""

    @app.job
    async def work() -> int:
        return 1

    job = await work.asubmit()
    assert await arun_jobs(app) == 1
    assert await job == 1


def test_clock_does_not_go_back(clock: ManualClock) -> None:
    """The clock cannot be moved backwards."""
    with pytest.raises(InvalidArgumentError):
        clock.advance(-1)


def test_plugin_gives_the_fixtures_and_costs_little(tmp_path: Path) -> None:
    """Pytest finds the fixtures, and a suite that does not use them imports only the plugin."""
    (tmp_path / "test_user.py").write_text(
        "import sys\n"
        "def test_lazy():\n"
        "    assert 'holdfast.app' not in sys.modules and 'msgspec' not in sys.modules\n"
        "def test_app(holdfast_app, holdfast_clock):\n"
        "    from holdfast.testing import run_jobs\n"
        "    job = holdfast_app.submit('echo', [1], delay_s=5)\n"
        "    holdfast_clock.advance(5)\n"
        "    assert run_jobs(holdfast_app) == 1 and job.result(timeout_s=0) == [1]\n"
        "def test_own(holdfast_memory):\n"
        "    from holdfast import Holdfast\n"
        "    app = Holdfast('./never')\n"
        "    holdfast_memory(app).submit('echo')\n"
    )
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["holdfast.testing.plugin"]\n')
    only_ours = ["-p", "no:hypothesispytest", "-p", "no:asyncio"]
    command = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "--rootdir", str(tmp_path), *only_ours]
    ended = subprocess.run([*command, str(tmp_path)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "3 passed" in ended.stdout, ended.stdout + ended.stderr
    assert not (tmp_path / "never").exists()
