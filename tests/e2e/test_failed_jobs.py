"""Commands that show a failed job: its arguments, every attempt with its traceback, and its end."""

import json
from pathlib import Path

import pytest

from holdfast import Backoff, Holdfast, JobFailedError
from tests.e2e.preloaded_prompt import LoadedProgram, LoadedShell
from tests.e2e.shell import Shell

WORDS = ("first", "second", "third \x1b[2J")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the directory of jobs."""
    return tmp_path_factory.mktemp("failed")


@pytest.fixture(scope="module")
def job_id(folder: Path) -> str:
    """The id of a job that failed three times with different messages."""
    app = Holdfast(folder / "data")
    left = list(WORDS)

    @app.job(max_attempts=3, backoff=Backoff.fixed(0))
    def resize(path: str, width: int) -> str:
        raise ValueError(f"{left.pop(0)} {path} {width}")

    with app:
        job = resize.submit("cat \x1b[2J.png", width=200)
        with app.worker(), pytest.raises(JobFailedError):
            job.result()
    return job.id


@pytest.fixture
def shell(loaded: LoadedProgram, folder: Path) -> Shell:
    """A shell that connects to the directory."""
    return LoadedShell(loaded, folder, str(folder / "data"))


def test_job_is_shown_with_its_arguments_and_the_traceback_of_every_attempt(shell: Shell, job_id: str) -> None:
    """`job get` on a terminal prints arguments and every attempt's traceback, without escape sequences."""
    status, text = shell.at_terminal("job", "get", job_id)
    assert status == 0
    assert '{"path": "cat \\u001b[2J.png", "width": 200}' in text
    for number, words in enumerate(WORDS, 1):
        assert f"attempt {number}  FAILED  on " in text
        assert f"ValueError: {words}".replace("\x1b", "\\x1b") in text
    assert text.count("Traceback (most recent call last):\r\n") == len(WORDS)
    assert text.count('test_failed_jobs.py", line ') == len(WORDS)
    assert "\x1b" not in text


def test_programs_read_arguments_and_attempts_as_json(shell: Shell, job_id: str) -> None:
    """`job get --json` has the arguments as a value, and worker, times, outcome and traceback of each attempt."""
    job = json.loads(shell.run("job", "get", job_id, "--json").stdout)
    attempts = job["attempt_details"]
    assert (job["arguments"], job["attempts"]) == ({"path": "cat \x1b[2J.png", "width": 200}, 3)
    assert [(one["number"], one["outcome"]) for one in attempts] == [(1, "FAILED"), (2, "FAILED"), (3, "FAILED")]
    for one, words in zip(attempts, WORDS, strict=True):
        assert one["reason"].startswith(f"ValueError: {words}")
        assert one["detail"].startswith("Traceback (most recent call last):\n")
        assert one["worker_id"]
        assert one["started_at_ms"] <= one["ended_at_ms"]
    assert job["attempts_missing"] == ""


def test_result_of_a_failed_job_is_its_traceback_as_text(shell: Shell, job_id: str) -> None:
    """`job result` of a failed job prints the failure on standard error and no output, or an object with --json."""
    piped = shell.run("job", "result", job_id)
    assert (piped.returncode, piped.stdout) == (1, "")
    assert "holdfast: the job ended FAILED: ValueError: third" in piped.stderr
    assert "\n  Traceback (most recent call last):\n" in piped.stderr
    assert "\x1b" not in piped.stderr
    told = shell.run("job", "result", job_id, "--json")
    failure = json.loads(told.stdout)["failure"]
    assert (told.returncode, failure["type"]) == (1, "ValueError")
    assert failure["traceback"].startswith("Traceback")


def test_history_shows_the_traceback_of_every_attempt(shell: Shell, job_id: str) -> None:
    """`job history` prints the traceback of every attempt after its line."""
    text = shell.run("job", "history", job_id).stdout
    assert text.count("\n  Traceback (most recent call last):\n") == len(WORDS)
    entries = json.loads(shell.run("job", "history", job_id, "--json").stdout)
    assert [bool(entry["detail"]) for entry in entries if entry["what"] in {"to be retried", "finished"}] == [True] * 3


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        ("hello", "arguments  hello\n"),
        ("", ""),
        ("\udcff\udcfe", "arguments  2 bytes, neither JSON nor text: b'\\xff\\xfe'\n"),
        (json.dumps(["x" * 100]), f'\narguments\n  [\n    "{"x" * 100}"\n  ]\n'),
        ("[" * 500, "\narguments\n  [[["),
    ],
)
def test_arguments_of_any_kind_can_be_shown(shell: Shell, job_id: str, payload: str, shown: str) -> None:
    """`job get` prints arguments that are JSON, text or neither, and long ones as a block."""
    del job_id  # the fixture has created the directory
    text = shell.run("job", "get", shell.run("job", "submit", "echo", payload).stdout.strip()).stdout
    assert shown in text
    assert ("arguments" in text) == bool(shown)


def test_large_arguments_are_cut_for_people_and_whole_for_programs(shell: Shell, job_id: str) -> None:
    """`job get` truncates large arguments and prints their size, and --json prints them whole."""
    del job_id
    value = {"words": ["word"] * 6_000}
    large = shell.run("job", "submit", "echo", "-", stdin=json.dumps(value)).stdout.strip()
    text = shell.run("job", "get", large).stdout
    assert len(text) < 10_000
    assert f"... ({len(json.dumps(value))} bytes in all; --json prints everything)" in text
    assert json.loads(shell.run("job", "get", large, "--json").stdout)["arguments"] == value
