"""Commands that follow jobs and workers: `job watch`, `events`, `worker list` and `worker drain`."""

import json
import signal

import pytest

from tests.e2e.fleet import Fleet, stable_port
from tests.e2e.preloaded_prompt import LoadedProgram, LoadedShell
from tests.e2e.shell import Shell
from tests.e2e.wait_until import eventually

#: An app with a job that reports progress and then waits for a file, and a job that fails.
STEPS = """
import time
from pathlib import Path
from holdfast.worker.context import current
from holdfast.worker.handlers import Handler, Mode

def steps(assignment):
    current().progress(0.25, "a \\x1b[2J quarter")
    while not Path(assignment.payload.decode()).exists():
        time.sleep(0.01)
    current().progress(1, "all")
    return b""

def fail(assignment):
    raise ValueError("no \\x1b[2J good")

class App:
    def handlers(self):
        return {"steps": Handler(steps, Mode.THREAD), "fail": Handler(fail, Mode.THREAD)}

app = App()
"""


@pytest.fixture
def fleet(loaded_fleet: Fleet) -> Fleet:
    """A fleet whose processes are forked from the preloaded program."""
    return loaded_fleet


@pytest.fixture
def shell(loaded: LoadedProgram, fleet: Fleet) -> Shell:
    """A shell with a server whose workers send heartbeats often."""
    program, _ = fleet.server("--heartbeat-ms", "50")
    return LoadedShell(loaded, fleet.folder, program.ready()["grpc"])


def start_worker(fleet: Fleet, shell: Shell, *arguments: str) -> None:
    (fleet.folder / "steps.py").write_text(STEPS)
    fleet.worker(shell.environment["HOLDFAST_CONNECT"], "-A", "steps:app", *arguments)


def test_watch_shows_changes_and_progress_until_the_end(fleet: Fleet, shell: Shell) -> None:
    """Without a terminal `job watch` prints each change as a line when it happens."""
    job_id = shell.run("job", "submit", "steps", "go").stdout.strip()
    watching = fleet.start("job", "watch", job_id, **shell.environment)
    eventually(lambda: watching.output, lambda text: "QUEUED" in text)
    start_worker(fleet, shell, "--worker-id", "w1")
    eventually(lambda: watching.output, lambda text: "RUNNING attempt 1 on w1 25 % a \\x1b[2J quarter" in text)
    (fleet.folder / "go").touch()
    assert watching.wait() == 0
    assert "DONE after" in watching.output.splitlines()[-1]


def test_watch_of_a_job_that_fails_is_no_success(shell: Shell) -> None:
    """`job watch` of a canceled job exits with 1, and the last JSON line has the terminal state."""
    job_id = shell.run("job", "submit", "echo", "--delay", "600").stdout.strip()
    shell.run("job", "cancel", job_id)
    done = shell.run("job", "watch", job_id, "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout.splitlines()[-1])["state"] == "CANCELED"


def test_watch_at_a_terminal_draws_a_bar(fleet: Fleet, shell: Shell) -> None:
    """On a terminal `job watch` draws a progress bar and ends with a plain line."""
    start_worker(fleet, shell)
    job_id = shell.run("job", "submit", "steps", "go").stdout.strip()
    go = (fleet.folder / "go").touch
    status, text = shell.at_terminal("job", "watch", job_id, awaited="quarter", then=go)
    assert (status, "DONE after" in text) == (0, True)
    assert "━" in text
    assert " 25%" in text
    assert "\x1b[2J" not in text


def test_failure_shows_its_traceback_at_a_terminal(fleet: Fleet, shell: Shell) -> None:
    """`job result` prints the traceback of a failed job, without escape sequences and without output."""
    start_worker(fleet, shell)
    job_id = shell.run("job", "submit", "fail").stdout.strip()
    piped = shell.run("job", "result", job_id)
    assert (piped.returncode, piped.stdout) == (1, "")
    assert 'steps.py", line ' in piped.stderr
    status, text = shell.at_terminal("job", "result", job_id)
    assert (status, 'steps.py", line ' in text) == (1, True)
    assert "\\x1b[2J good" in text
    assert "\x1b[2J" not in text


def test_nothing_is_a_word_at_a_terminal(shell: Shell) -> None:
    """On a terminal an empty listing prints a sentence instead of a heading."""
    assert shell.at_terminal("queue", "list") == (0, "no queue has jobs, and all are open\r\n")
    assert shell.at_terminal("worker", "list") == (0, "no workers\r\n")
    assert shell.at_terminal("job", "list") == (0, "no jobs\r\n")


def test_up_runs_the_jobs_of_an_app(loaded: LoadedProgram, fleet: Fleet) -> None:
    """`holdfast up -A` runs the jobs of an app."""
    (fleet.folder / "steps.py").write_text(STEPS)
    program, _ = fleet.up("-A", "steps:app")
    shell = LoadedShell(loaded, fleet.folder, program.ready()["grpc"])
    (fleet.folder / "go").touch()
    assert shell.run("job", "submit", "steps", "go", "--wait").returncode == 0


def test_up_ends_with_an_app_that_cannot_be_had(fleet: Fleet) -> None:
    """`holdfast up` with an app that cannot be imported prints the error once and exits."""
    program = fleet.start("up", "--data", "data", "--port", "0", "-A", "nowhere:app")
    assert (program.wait(), program.output) == (2, "")
    assert program.log.count("there is no module 'nowhere'") == 1
    assert "the worker cannot start" in program.log


@pytest.mark.parametrize("way", ["address", "directory"])
def test_waiting_outlasts_a_server_that_is_killed(loaded: LoadedProgram, fleet: Fleet, way: str) -> None:
    """A command that waits for a job or watches it reconnects after a kill of the server and prints the job's end."""
    port = stable_port()
    program, _ = fleet.server(port=port)
    shell = LoadedShell(loaded, fleet.folder, "data" if way == "directory" else program.ready()["grpc"])
    waiting = fleet.start("job", "submit", "echo", "kept", "--wait", **shell.environment)
    job_id = eventually(lambda: waiting.log).strip()
    watching = fleet.start("job", "watch", job_id, **shell.environment)
    eventually(lambda: watching.output, lambda text: "QUEUED" in text)
    program.kill()
    eventually(lambda: watching.log, lambda text: "lost the connection to the server" in text)
    gone = shell.run("job", "get", job_id)
    if way == "directory":  # a single request serves the directory itself, then releases it
        assert (gone.returncode, "QUEUED" in gone.stdout) == (0, True)
    else:
        assert (gone.returncode, "start" in gone.stderr, gone.stdout) == (3, True, "")
    fleet.up(port=port)
    assert (waiting.wait(), waiting.output) == (0, "kept")
    assert (watching.wait(), "DONE after" in watching.output) == (0, True)


def test_events_tell_all_without_a_gap_and_can_be_resumed(shell: Shell) -> None:
    """`holdfast events` prints all events from a position on, and refuses a position past the end."""
    ids = [shell.run("job", "submit", "echo", "--delay", "600").stdout.strip() for _ in range(3)]
    lines = [json.loads(line) for line in shell.run("events", "--after", "0", "-n", "3", "--json").stdout.splitlines()]
    assert [(line["job_id"], line["what"]) for line in lines] == [(job_id, "submitted") for job_id in ids]
    after = str(lines[0]["position"])
    resumed = shell.run("events", "--after", after, "--limit", "2").stdout.splitlines()
    assert [job_id for job_id, line in zip(ids[1:], resumed, strict=True) if job_id in line] == ids[1:]
    beyond = shell.run("events", "--after", "999999")
    assert (beyond.returncode, beyond.stdout) == (4, "")


def test_stopped_events_say_where_to_go_on(fleet: Fleet, shell: Shell) -> None:
    """`holdfast events` prints the position to resume from after Ctrl-C and after the server has ended."""
    shell.run("job", "submit", "echo")
    following = [fleet.start("events", "--after", "0", **shell.environment) for _ in range(2)]
    eventually(lambda: [one.output for one in following], lambda texts: all("submitted" in text for text in texts))
    following[0].signal(signal.SIGINT)
    assert following[0].wait() == 130
    assert following[0].log.startswith("holdfast: continue with --after ")
    fleet.programs[0].stop()
    assert following[1].wait() == 3
    assert "holdfast: continue with --after " in following[1].log
    assert "Traceback" not in following[1].log


def test_workers_are_listed_and_drained(fleet: Fleet, shell: Shell) -> None:
    """`worker list` shows a worker, `worker drain` ends it, and draining an unknown worker is refused."""
    worker = fleet.worker(
        shell.environment["HOLDFAST_CONNECT"], "--worker-id", "w1", "--queues", "high,low", "--slots", "3"
    )
    (seen,) = json.loads(shell.run("worker", "list", "--json").stdout)
    assert (seen["worker_id"], seen["queues"], seen["slots"], seen["running"]) == ("w1", ["high", "low"], 3, 0)
    lines = shell.run("worker", "list").stdout.splitlines()
    assert lines[0].split() == ["WORKER", "STATE", "RUNNING", "HEARTBEAT", "QUEUES", "TYPES"]
    assert lines[1].split()[:3] == ["w1", "connected", "0/3"]
    assert shell.run("worker", "drain", "w1").stdout.startswith("w1 was asked to drain")
    assert worker.wait() == 0
    misplaced = shell.run("worker", "--connect", "127.0.0.1:1", "list")
    assert (misplaced.returncode, "`holdfast worker list --connect …`" in misplaced.stderr) == (2, True)
    gone = shell.run("worker", "drain", "nobody")
    assert (gone.returncode, "holdfast worker list" in gone.stderr) == (4, True)
