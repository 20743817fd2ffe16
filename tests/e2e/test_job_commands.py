"""`holdfast job` against a running server: what it prints, and its exit codes."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.fleet import HOLDFAST, Fleet, clean_environment

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Runs `holdfast job …` against one server with a worker."""
    folder: Path = tmp_path_factory.mktemp("jobs")
    fleet = Fleet(folder)
    try:
        address = fleet.start("up", "--port", "0", "--data", "jobs").ready()["grpc"]

        def job(*arguments: str, stdin: str = "", connect: str = address) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [*HOLDFAST, "job", *arguments, "--connect", connect],
                input=stdin,
                capture_output=True,
                text=True,
                env=clean_environment({}),
                cwd=folder,
                check=False,
                timeout=60,
            )

        yield job
    finally:
        fleet.end()


def test_submitted_job_gives_its_output(run: Run) -> None:
    """`submit` prints an id, `result` waits and prints exactly the output."""
    submitted = run("submit", "echo", "hello")
    result = run("result", submitted.stdout.strip())
    assert (result.returncode, result.stdout, result.stderr) == (0, "hello", "")


def test_submit_can_wait_for_the_result(run: Run) -> None:
    """With --wait and a payload from standard input, one command does it all."""
    waited = run("submit", "echo", "-", "--wait", stdin="from a pipe")
    assert (waited.returncode, waited.stdout) == (0, "from a pipe")


def test_repeated_request_id_finds_the_first_job(run: Run) -> None:
    """The same request id gives the same id; another payload under it is refused with exit code 4."""
    first, second = (run("submit", "echo", "a", "--request-id", "r-1").stdout for _ in range(2))
    changed = run("submit", "echo", "b", "--request-id", "r-1")
    assert first == second
    assert (changed.returncode, changed.stdout) == (4, "")
    assert "use a new request id" in changed.stderr


def test_json_is_for_programs(run: Run) -> None:
    """--json prints states by name and times as numbers."""
    job_id = json.loads(run("submit", "echo", "x", "--json").stdout)["job_id"]
    result = json.loads(run("result", job_id, "--json").stdout)
    state = json.loads(run("get", job_id, "--json").stdout)
    listed = json.loads(run("list", "--json", "--state", "done").stdout)
    assert (result["terminal_status"], result["output_bytes"]) == ("DONE", "x")
    assert state["status"] == "DONE"
    assert isinstance(state["created_at_ms"], int)
    assert job_id in [one["job_id"] for one in listed]


def test_canceled_job_is_no_success(run: Run) -> None:
    """Waiting for a job that was canceled exits with 1 and says why."""
    job_id = run("submit", "echo", "later", "--delay", "600").stdout.strip()
    canceled = run("cancel", job_id, "--reason", "changed my mind")
    result = run("result", job_id)
    assert canceled.stdout == "canceled\n"
    assert (result.returncode, "CANCELED: changed my mind" in result.stderr) == (1, True)


def test_people_see_a_table(run: Run) -> None:
    """Without --json a listing has a heading and a line for each job."""
    run("submit", "echo", "seen", "--wait")
    lines = run("list", "--limit", "1").stdout.splitlines()
    assert lines[0].split() == ["ID", "STATE", "TYPE", "CREATED", "FINISHED"]
    assert len(lines) == 2


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("get", "nothing-like-it"), 4, "no job 'nothing-like-it'"),
        (("get", ""), 2, "got an empty string"),
        (("submit", "two words"), 2, "letters, digits"),
        (("submit", "echo", "--priority", "12"), 2, "from 0 to 9"),
        (("list", "--state", "weird"), 2, "QUEUED, RUNNING"),
        (("submit", "echo", "--wait", "--delay", "600", "--timeout", "0.1"), 3, "has not ended yet: it is not due"),
    ],
)
def test_mistakes_get_a_sentence_and_an_exit_code(
    run: Run, arguments: tuple[str, ...], status: int, words: str
) -> None:
    """No mistake leads to a traceback, and each says what was expected or what to do next."""
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_server_that_is_not_there_is_unreachable(run: Run) -> None:
    """Exit code 3, with the command that starts one."""
    done = run("get", "some-id", connect="127.0.0.1:1")
    assert done.returncode == 3
    assert "holdfast up" in done.stderr


def test_job_of_an_unknown_type_says_that_nobody_knows_it(run: Run) -> None:
    """`why` answers in a sentence, and so does a wait that takes too long."""
    job_id = run("submit", "no.such.type").stdout.strip()
    told = run("why", job_id)
    waited = run("result", job_id, "--timeout", "0.1")
    assert (told.returncode, "knows the type 'no.such.type'" in told.stdout) == (0, True)
    assert (waited.returncode, "knows the type 'no.such.type'" in waited.stderr) == (3, True)
