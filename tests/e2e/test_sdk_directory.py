"""One directory and many processes: the serving process may die at any moment."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from importlib import util
from pathlib import Path
from types import ModuleType
from typing import IO, Any

import pytest

from holdfast import Holdfast, ResultTimeoutError, State, UnavailableError
from holdfast.errors import FailedPreconditionError
from tests.e2e.wait_until import DEADLINE_S, eventually, pause

APP = Path(__file__).parent / "sdk_app.py"
KILLS = 5


class Processes:
    """Processes that use one directory; the fixture kills them after the test."""

    def __init__(self, directory: Path, lease_ms: int) -> None:
        self.directory = directory
        self.environment = {**os.environ, "SDK_JOBS": str(directory), "SDK_LEASE_MS": str(lease_ms)}
        self._running: list[subprocess.Popen[str]] = []

    def start(self, *words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, str(APP), *words],
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._running.append(process)
        return process

    def serve(self) -> subprocess.Popen[str]:
        """Starts a process that opens the directory and keeps it open."""
        process = self.start("serve")
        assert _stdout(process).readline() == "ready\n"
        return process

    def server_pid(self) -> int:
        """Returns the pid in the lock file: the current server or the last one."""
        return int((self.directory / "LOCK").read_text() or 0)

    def is_served(self) -> bool:
        return (self.directory / "holdfast.sock").is_socket()

    def kill(self, process: subprocess.Popen[str]) -> None:
        process.kill()
        process.wait()
        self._forget(process)

    def end(self) -> None:
        for process in list(self._running):
            self.kill(process)

    def _forget(self, process: subprocess.Popen[str]) -> None:
        self._running.remove(process)
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()


def _stdout(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stdout is not None
    return process.stdout


@pytest.fixture
def lease_ms() -> int:
    """A lease length that no live worker exceeds."""
    return 60_000


@pytest.fixture
def processes(tmp_path: Path, lease_ms: int) -> Iterator[Processes]:
    running = Processes(tmp_path / "jobs", lease_ms)
    yield running
    running.end()


@pytest.fixture
def module(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The app in this process, on the same directory."""
    for name in ("SDK_JOBS", "SDK_LEASE_MS"):
        monkeypatch.setenv(name, processes.environment[name])
    spec = util.spec_from_file_location("sdk_app", APP)
    assert spec is not None
    assert spec.loader is not None
    loaded = util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    yield loaded
    loaded.app.close()


class Submitter(threading.Thread):
    """Submits jobs continuously until it is stopped."""

    def __init__(self, double: Any) -> None:  # noqa: ANN401 - from a module loaded by path
        super().__init__()
        self._double = double
        self.is_stopping = threading.Event()
        self.jobs: list[tuple[int, Any]] = []
        self.error: BaseException | None = None

    def has(self, count: int) -> bool:
        return len(self.jobs) >= count

    def run(self) -> None:
        try:
            while not self.is_stopping.wait(0.002):
                number = len(self.jobs)
                self.jobs.append((number, self._double.submit(number)))
        except BaseException as error:  # noqa: BLE001 - the test checks it
            self.error = error


@pytest.mark.slow
@pytest.mark.parametrize("lease_ms", [3_000])
def test_directory_loses_no_job_when_its_serving_process_is_killed(processes: Processes, module: ModuleType) -> None:
    """Two workers and a web process share a directory, and repeated kills of the serving one lose no job."""
    workers = [processes.start("work"), processes.start("work")]
    eventually(processes.is_served, what="a worker that serves")
    submitters = [Submitter(module.double), Submitter(module.double)]
    for submitter in submitters:
        submitter.start()
    for _ in range(KILLS):
        wanted = len(submitters[0].jobs) + 20
        eventually(partial(submitters[0].has, wanted), what="more jobs")
        served_by = processes.server_pid()
        victim = next((worker for worker in workers if worker.pid == served_by), workers[0])
        processes.kill(victim)
        workers = [worker for worker in workers if worker is not victim] + [processes.start("work")]
    for submitter in submitters:
        submitter.is_stopping.set()
        submitter.join()
    assert [submitter.error for submitter in submitters] == [None, None]
    for submitter in submitters:
        results = [job.result(timeout_s=DEADLINE_S) for _, job in submitter.jobs]
        assert results == [2 * number for number, _ in submitter.jobs]
    assert module.app.stats().states["DONE"] == sum(len(submitter.jobs) for submitter in submitters)


def test_killed_server_is_replaced_and_its_jobs_are_there(processes: Processes, module: ModuleType) -> None:
    """A client that waits for a result survives a kill of the server, and its process serves the directory next."""
    server = processes.serve()
    job = module.double.submit(21)
    assert processes.server_pid() == server.pid
    results: list[int] = []
    waiting = threading.Thread(target=lambda: results.append(job.result(timeout_s=DEADLINE_S)))
    waiting.start()
    processes.kill(server)
    eventually(processes.server_pid, lambda pid: pid == os.getpid(), what="this process as the server")
    with module.app.worker():
        waiting.join()
    assert results == [42]


def test_running_job_outlives_the_server(processes: Processes, module: ModuleType, tmp_path: Path) -> None:
    """A worker keeps its lease when another process takes over the directory, and the job is not run again."""
    server = processes.serve()
    worker = processes.start("work")
    job = module.gate.submit(str(tmp_path / "go"))
    eventually((tmp_path / "go.begun").exists, what="a worker that has the lease")
    processes.kill(server)
    eventually(processes.server_pid, lambda pid: pid in {os.getpid(), worker.pid}, what="another server")
    (tmp_path / "go").touch()
    assert job.result(timeout_s=DEADLINE_S) == 1
    assert job.view().attempts == 1


@pytest.mark.parametrize("lease_ms", [600_000])
def test_job_of_a_worker_that_was_killed_while_it_served_runs_again_at_once(
    processes: Processes, module: ModuleType, tmp_path: Path
) -> None:
    """When the serving process is killed with its worker, the next server does not wait for that worker's lease."""
    worker = processes.start("work")
    eventually(processes.is_served, what="a worker that serves")
    assert processes.server_pid() == worker.pid
    job = module.gate.submit(str(tmp_path / "go"))
    eventually((tmp_path / "go.begun").exists, what="a worker that has the lease")
    processes.kill(worker)
    (tmp_path / "go").touch()
    with module.app.worker():
        assert job.result(timeout_s=DEADLINE_S) == 2


def test_wait_ends_in_time_while_the_server_stands_still(processes: Processes, module: ModuleType) -> None:
    """A wait for a result ends at its timeout while the server is stopped, and works after the server continues."""
    server = processes.serve()
    job = module.double.submit(4)
    server.send_signal(signal.SIGSTOP)
    with pytest.raises(ResultTimeoutError):
        job.result(timeout_s=0.1)
    server.send_signal(signal.SIGCONT)
    with module.app.worker():
        assert job.result(timeout_s=DEADLINE_S) == 8


def test_clean_close_hands_over_at_once(processes: Processes, module: ModuleType) -> None:
    """A process that closes its app hands the directory to the next process, which has all jobs."""
    job = module.double.submit(1)
    other = processes.start("serve")
    assert _stdout(other).readline() == "ready\n"
    assert processes.server_pid() == os.getpid()
    module.app.close()
    eventually(processes.server_pid, lambda pid: pid == other.pid, what="the other process as the server")
    with Holdfast(processes.directory) as again:
        assert again.get(job.id).status() is State.QUEUED


def test_short_processes_leave_their_jobs(processes: Processes, module: ModuleType) -> None:
    """Processes that only submit and exit lose no job."""
    ids = []
    for number in range(3):
        process = processes.start("submit", str(number))
        ids.append(_stdout(process).readline().strip())
        assert process.wait(DEADLINE_S) == 0
    with module.app.worker():
        assert [module.app.job_handle(job_id).result(timeout_s=DEADLINE_S) for job_id in ids] == [0, 2, 4]


def test_forked_child_opens_the_directory_afresh(processes: Processes, module: ModuleType) -> None:
    """A forked child opens the directory for itself, and does not hold it when its parent dies."""
    program = (
        "import os, sys, signal\n"
        f"sys.path.insert(0, {str(APP.parent)!r})\n"
        "from sdk_app import app, double\n"
        "print(double.submit(1).id, flush=True)\n"
        "sys.stdin.readline()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    print(double.submit(2).id, flush=True)\n"
        "    sys.stdin.readline()\n"
        "    print(double.submit(3).id, app.stats().states['QUEUED'], flush=True)\n"
        "    app.close()\n"
        "    sys.exit(0)\n"
        "print(child, flush=True)\n"
        "os.waitpid(child, 0)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", program],
        env=processes.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert parent.stdin is not None
    assert parent.stderr is not None
    assert _stdout(parent).readline(), parent.stderr.read()
    assert module.app.stats().states["QUEUED"] == 1
    parent.stdin.write("fork\n")
    parent.stdin.flush()
    lines = [_stdout(parent).readline().strip() for _ in range(2)]
    assert all(lines), parent.stderr.read()
    parent.kill()
    assert module.app.stats().states["QUEUED"] == 2
    parent.stdin.write("go\n")
    parent.stdin.flush()
    last = _stdout(parent).readline().split()
    assert last, parent.stderr.read()
    assert last[1] == "3"
    assert parent.stderr.read() == ""
    parent.communicate()
    with module.app.worker():
        assert module.app.job_handle(last[0]).result(timeout_s=DEADLINE_S) == 6


def test_interrupt_ends_a_wait() -> None:
    """SIGINT interrupts a caller that waits for a result."""
    program = (
        "from holdfast import Holdfast\n"
        "app = Holdfast('memory://')\n"
        "job = app.submit('nobody')\n"
        "try:\n"
        "    print('waiting', flush=True)\n"
        "    job.result()\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted', flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert _stdout(process).readline() == "waiting\n"
    pause(0.1)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=DEADLINE_S)[0] == "interrupted\n"
    assert process.returncode == 0


def test_long_paths_are_no_problem(tmp_path: Path) -> None:
    """A directory with a path longer than the limit for sockets is served like any other."""
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    with Holdfast(deep) as one, Holdfast(deep) as two:
        job = one.submit("echo", {"a": 1})
        assert two.job_handle(job.id).status() is State.QUEUED


def test_directory_that_may_not_be_written_is_an_error(tmp_path: Path) -> None:
    """An app reports a directory that cannot be created at its first call."""
    (tmp_path / "file").write_text("in the way")
    with Holdfast(tmp_path / "file" / "jobs") as app, pytest.raises(FailedPreconditionError, match="data directory"):
        app.stats()


def test_dead_socket_is_replaced_and_foreign_file_is_not(tmp_path: Path) -> None:
    """An app refuses a directory with a regular file in place of the socket, and leaves that file unchanged."""
    with Holdfast(tmp_path) as app:
        app.stats()
    (tmp_path / "holdfast.sock").write_text("precious")
    with Holdfast(tmp_path) as app, pytest.raises(FailedPreconditionError, match="in the way"):
        app.stats()
    assert (tmp_path / "holdfast.sock").read_text() == "precious"
    (tmp_path / "holdfast.sock").unlink()
    with Holdfast(tmp_path) as app:
        assert app.stats().epoch >= 3


def test_server_of_the_command_line_serves_apps_too(processes: Processes) -> None:
    """An app that opens the directory of `holdfast up` connects to that server."""
    command = [sys.executable, "-m", "holdfast", "up", "--data", str(processes.directory), "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert "ready" in _stdout(server).readline()
        with Holdfast(processes.directory) as app:
            assert app.submit("echo", {"a": 1}).result(timeout_s=DEADLINE_S) == {"a": 1}
            assert processes.server_pid() == server.pid
    finally:
        server.terminate()
        server.communicate()


def test_closed_directory_refuses_calls(tmp_path: Path) -> None:
    """Calls fail after the app is closed, and do not reopen the directory."""
    app = Holdfast(tmp_path)
    job = app.submit("echo")
    app.close()
    with pytest.raises(UnavailableError):
        job.status()


def test_program_that_just_ends_leaves_things_in_order(processes: Processes) -> None:
    """A program that exits without close, even with a running job, prints nothing and releases the directory."""
    program = (
        f"import sys; sys.path.insert(0, {str(APP.parent)!r})\n"
        "from sdk_app import app, gate\n"
        "worker = app.worker(slots=2).start()\n"
        f"job = gate.submit({str(processes.directory.with_name('never'))!r})\n"
        "next(view for view in job.events() if view.state.name == 'RUNNING')\n"
        "print(job.id)\n"
    )
    command = [sys.executable, "-W", "error", "-c", program]
    ended = subprocess.run(
        command, env=processes.environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert not processes.is_served()
    with Holdfast(processes.directory) as app:
        assert app.get(ended.stdout.strip()).status() is State.QUEUED


def test_closing_an_app_lets_its_workers_finish(module: ModuleType) -> None:
    """Closing an app lets its background workers finish their jobs first."""
    app = module.app
    job = module.double.submit(2)
    app.worker(slots=1).start()
    next(view for view in job.events() if view.state is not State.QUEUED)
    app.close()
    with Holdfast(app.url) as again:
        assert again.job_handle(job.id).result(timeout_s=0) == 4


def test_job_functions_are_pickled_by_name() -> None:
    """A process pool can pickle a job function like any other function."""
    program = (
        "import multiprocessing\n"
        "from holdfast import Holdfast\n"
        "app = Holdfast('memory://')\n"
        "@app.job\n"
        "def inc(n: int) -> int:\n"
        "    return n + 1\n"
        "app.stats()\n"
        "with multiprocessing.get_context('fork').Pool(2) as pool:\n"
        "    print(pool.map(inc, [1, 2]))\n"
    )
    command = [sys.executable, "-W", "error", "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert (ended.stdout, ended.stderr) == ("[2, 3]\n", "")
