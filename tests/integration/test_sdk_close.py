"""An app that is closed while it opens, while it is used, or before its worker starts."""

import asyncio
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from holdfast import Holdfast, UnavailableError
from holdfast.errors import AbortedError


def test_app_closed_while_it_opens_gives_its_directory_back(tmp_path: Path) -> None:
    """An app that is closed during its recovery releases its directory."""
    with Holdfast(tmp_path / "jobs") as app:
        app.job(len).submit_many([("x",)] * 3_000)  # recovery nearly always takes longer than closing
    unanswered = 0
    while unanswered < 3:
        unanswered += asyncio.run(_is_closed_before_it_answers(Holdfast(tmp_path / "jobs")))
        with Holdfast(tmp_path / "jobs") as other:
            assert other.stats().workers == 0


async def _is_closed_before_it_answers(app: Holdfast) -> bool:
    asking = asyncio.create_task(app.astats())
    await asyncio.sleep(0)  # the call reaches the portal, which opens the directory
    await app.aclose()
    try:
        await asking
    except UnavailableError:
        return True
    return False


def test_worker_of_a_closed_app_ends(tmp_path: Path) -> None:
    """A worker of a closed app fails to start with AbortedError."""
    app = Holdfast(tmp_path / "jobs")
    app.close()
    with pytest.raises(AbortedError, match="closed"):
        app.worker().start()
    with pytest.raises(AbortedError, match="closed"):
        app.worker().run()


def test_second_close_waits_for_the_first(tmp_path: Path) -> None:
    """Two threads close an app with a running job, and neither returns before the job's result is stored."""
    app = Holdfast(tmp_path / "jobs")
    begun, may_end = threading.Event(), threading.Event()

    @app.job
    def waiting() -> int:
        begun.set()
        may_end.wait()
        return 1

    app.worker().start()
    job = waiting.submit()
    begun.wait()
    closing = [threading.Thread(target=app.close) for _ in range(2)]
    for thread in closing:
        thread.start()
    may_end.set()
    for thread in closing:
        thread.join()
    with Holdfast(tmp_path / "jobs") as after:
        assert after.job_handle(job.id).result(timeout_s=0) == 1


def test_handler_of_a_signal_may_ask_too(tmp_path: Path) -> None:
    """A signal handler that calls the app during another call of the same thread does not deadlock."""
    with Holdfast(tmp_path / "jobs") as app:
        app.stats()
        asked: list[int] = []

        def ask(*_: object) -> None:
            asked.append(app.stats().position)
            if len(asked) < 200:  # otherwise the last alarm could come after this handler is removed
                signal.setitimer(signal.ITIMER_REAL, 0.001)  # not earlier, because handlers would nest without end

        before = signal.signal(signal.SIGALRM, ask)
        patience_s, _ = signal.setitimer(signal.ITIMER_REAL, 0.001)  # the alarm of the test runner
        try:
            while len(asked) < 200:
                app.stats()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            signal.setitimer(signal.ITIMER_REAL, patience_s)
    assert len(asked) >= 200


def test_app_that_is_dropped_unclosed_is_closed_at_the_end(tmp_path: Path) -> None:
    """A program that replaces its app without closing it exits without output, and has the jobs of both apps."""
    program = (
        "from holdfast import Holdfast\n"
        "for _ in range(2):\n"
        "    app = Holdfast('jobs')\n"
        "    app.submit('echo', {})\n"
        "print(len(list(app.find())))\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (ended.stdout, ended.stderr) == ("2\n", "")
