"""Output and exit codes of `holdfast job` with a running server."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.proto import taskqueue_public_pb2
from tests.e2e.fleet import Fleet, fleet_in
from tests.e2e.preloaded_prompt import LoadedProgram, LoadedShell
from tests.e2e.shell import Done, Shell

Run = Callable[..., Done]


@pytest.fixture
def fleet(loaded_fleet: Fleet) -> Fleet:
    """A fleet whose processes are forked from the preloaded program."""
    return loaded_fleet


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory, loaded: LoadedProgram) -> Iterator[Shell]:
    """A shell with one server and its worker."""
    folder: Path = tmp_path_factory.mktemp("jobs")
    with fleet_in(folder) as fleet:
        yield LoadedShell(loaded, folder, fleet.start("up", "--port", "0", "--data", "jobs").ready()["grpc"])


@pytest.fixture
def run(shell: Shell) -> Run:
    """A function that runs `holdfast job …`."""
    return lambda *arguments, **options: shell.run("job", *arguments, **options)


def test_submitted_job_gives_its_output(run: Run) -> None:
    """`job submit` prints an id, and `job result` waits and prints exactly the output."""
    submitted = run("submit", "echo", "hello")
    result = run("result", submitted.stdout.strip())
    assert (result.returncode, result.stdout, result.stderr) == (0, "hello", "")


def test_submit_can_wait_for_the_result(run: Run) -> None:
    """`job submit - --wait` reads the payload from standard input and prints the output."""
    waited = run("submit", "echo", "-", "--wait", stdin="from a pipe")
    assert (waited.returncode, waited.stdout) == (0, "from a pipe")


def test_repeated_request_id_finds_the_first_job(run: Run) -> None:
    """A repeated submit with the same request id prints the first job's id, and another payload gets exit code 4."""
    first, second = (run("submit", "echo", "a", "--request-id", "r-1").stdout for _ in range(2))
    changed = run("submit", "echo", "b", "--request-id", "r-1")
    assert first == second
    assert (changed.returncode, changed.stdout) == (4, "")
    assert "use a new request id" in changed.stderr


def test_json_is_for_programs(run: Run) -> None:
    """With --json, job commands print states by name and times as numbers."""
    job_id = json.loads(run("submit", "echo", "x", "--json").stdout)["job_id"]
    result = json.loads(run("result", job_id, "--json").stdout)
    state = json.loads(run("get", job_id, "--json").stdout)
    listed = json.loads(run("list", "--json", "--state", "done").stdout)
    assert (result["state"], result["output"]) == ("DONE", "x")
    assert (state["state"], state["type"], state["queue"], state["attempts"]) == ("DONE", "echo", "default", 1)
    assert isinstance(state["created_at_ms"], int)
    assert job_id in [one["job_id"] for one in listed]


def test_canceled_job_is_no_success(run: Run) -> None:
    """`job result` of a canceled job exits with 1 and prints the reason."""
    job_id = run("submit", "echo", "later", "--delay", "600").stdout.strip()
    canceled = run("cancel", job_id, "--reason", "changed my mind")
    result = run("result", job_id)
    assert canceled.stdout == "canceled\n"
    assert (result.returncode, "CANCELED: changed my mind" in result.stderr) == (1, True)


def test_people_see_a_table(run: Run) -> None:
    """Without --json `job list` prints a heading and a line for each job."""
    run("submit", "echo", "seen", "--wait")
    lines = run("list", "--limit", "1").stdout.splitlines()
    assert lines[0].split() == ["ID", "STATE", "TYPE", "QUEUE", "CREATED", "NOTE"]
    assert len(lines) == 2


def test_list_says_when_there_are_more(run: Run) -> None:
    """`job list` prints a hint on standard error if --limit left out jobs."""
    for _ in range(2):
        run("submit", "echo", "--queue", "many")
    cut, whole = (run("list", "--queue", "many", "--limit", limit) for limit in ("1", "2"))
    assert (len(cut.stdout.splitlines()), cut.stderr) == (
        2,
        "holdfast: only 1 jobs are shown and there are more; see --limit\n",
    )
    assert (len(whole.stdout.splitlines()), whole.stderr) == (3, "")


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("get", "nothing-like-it"), 4, "no job 'nothing-like-it'"),
        (("get", ""), 2, "got an empty string"),
        (("submit", "two words"), 2, "letters, digits"),
        (("submit", "echo", "--priority", "12"), 2, "from 0 to 9"),
        (("list", "--state", "weird"), 2, "QUEUED, RUNNING"),
        (("list", "--since", "yesterday"), 2, "a time such as 2026-11-15T12:00"),
        (("list", "--since", "9" * 30), 2, "a time such as 2026-11-15T12:00"),
        (("list", "--label", "nothing"), 2, "KEY=VALUE"),
        (("submit", "echo", "--label", "=x"), 2, "KEY=VALUE"),
        (("submit", "echo", "--delay", "inf"), 2, "--delay"),
        (("submit", "echo", "--delay", "nan"), 2, "--delay"),
        (("submit", "echo", "--job-timeout", "1e300"), 2, "--job-timeout"),
        (("submit", "echo", "--job-timeout", "nan"), 2, "--job-timeout"),
        (("submit", "echo", "--wait", "--timeout", "nan"), 2, "--timeout"),
        (("submit", "echo", "--max-attempts", "99999999999"), 2, "--max-attempts"),
        (("submit", "echo", "--request-id", "\udcff"), 2, "surrogates not allowed"),
        (("watch", "nothing-like-it"), 4, "no job 'nothing-like-it'"),
        (("history", "nothing-like-it"), 4, "nothing-like-it"),
        (("retry", "nothing-like-it"), 4, "no job 'nothing-like-it'"),
        (("result", "nothing-like-it"), 4, "no job 'nothing-like-it'"),
        (("get", "x", "--connect", "nonsense"), 2, "got 'nonsense', which is not an existing directory"),
        (("get", "x", "--connect", "localhost:99999"), 2, "--connect must be host:port"),
        (("get", "x", "--connect", "http://localhost:1"), 2, "--connect must be host:port"),
        (("get", "x", "--connect", "."), 3, "the directory contains no jobs; there are jobs in --connect jobs"),
        (("submit", "echo", "--wait", "--delay", "600", "--timeout", "0.1"), 3, "has not ended yet: it is not due"),
    ],
)
def test_mistakes_get_a_sentence_and_an_exit_code(
    run: Run, arguments: tuple[str, ...], status: int, words: str
) -> None:
    """Every mistake prints a message with the expected value or the next step and no traceback."""
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_server_that_is_not_there_is_unreachable(run: Run) -> None:
    """Without a server a command exits with 3 and names the command that starts one."""
    done = run("get", "some-id", "--connect", "127.0.0.1:1")
    assert done.returncode == 3
    assert "holdfast up" in done.stderr


def test_command_opens_an_unserved_directory_itself(loaded: LoadedProgram, fleet: Fleet) -> None:
    """A command opens a directory that no process serves, lists and submits jobs, and releases it."""
    server, wire = fleet.server(data="left")
    first = wire.new()
    server.kill()
    shell = LoadedShell(loaded, fleet.folder)
    second = shell.run("job", "submit", "echo", "--connect", "left").stdout.strip()
    assert ids(shell.run("job", "list", "--json", "--connect", "left")) == [second, first]
    assert fleet.server(data="left")[1].status(first).status == taskqueue_public_pb2.QUEUED


def test_why_and_result_report_that_no_worker_knows_the_type(run: Run) -> None:
    """`job why` and a `job result` that times out report that no worker knows the type."""
    job_id = run("submit", "no.such.type").stdout.strip()
    told = run("why", job_id)
    waited = run("result", job_id, "--timeout", "0.1")
    assert (told.returncode, "knows the type 'no.such.type'" in told.stdout) == (0, True)
    assert (waited.returncode, "knows the type 'no.such.type'" in waited.stderr) == (3, True)


def ids(done: Done) -> list[str]:
    return [one["job_id"] for one in json.loads(done.stdout)]


def test_list_finds_by_everything_that_a_job_has(run: Run) -> None:
    """`job list` filters by queue, type, state, labels and time, alone and combined."""
    first = run("submit", "echo", "--queue", "search", "-l", "color=red", "-l", "size=1", "--wait").stderr.strip()
    second = run("submit", "search.type", "--queue", "search", "-l", "color=red").stdout.strip()
    listed = [
        ids(run("list", "--json", *filters))
        for filters in (
            ("--queue", "search"),
            ("--queue", "search", "--oldest-first"),
            ("--type", "search.type"),
            ("--queue", "search", "--state", "done"),
            ("--label", "color=red", "--label", "size=1"),
            ("--queue", "search", "--since", "1h"),
            ("--queue", "search", "--before", "1h"),
            ("--queue", "search", "--since", "2020-01-01T00:00", "--limit", "1"),
        )
    ]
    both = [second, first]
    assert listed == [both, both[::-1], [second], [first], [first], both, [], [second]]


def test_retry_makes_a_new_job_of_one_that_has_ended(run: Run) -> None:
    """`job retry` of a finished job creates a new job with `retry_of`, and an unfinished job is refused."""
    first = run("submit", "echo", "again", "--wait").stderr.strip()
    second = run("retry", first).stdout.strip()
    assert run("result", second).stdout == "again"
    assert json.loads(run("get", second, "--json").stdout)["retry_of"] == first
    waiting = run("submit", "echo", "--delay", "600").stdout.strip()
    assert run("retry", waiting).returncode == 4


def test_history_tells_every_step(run: Run) -> None:
    """`job history` prints one line per event, oldest first."""
    job_id = run("submit", "echo", "x", "--wait").stderr.strip()
    steps = [entry["what"] for entry in json.loads(run("history", job_id, "--json").stdout)]
    lines = run("history", job_id).stdout.splitlines()
    assert steps == ["submitted", "granted", "finished"]
    assert len(lines) == 4
    assert lines[0].split()[:3] == ["POSITION", "TIME", "EVENT"]


def test_directory_is_as_good_as_an_address(run: Run) -> None:
    """Commands on the same machine can connect by the server's directory."""
    job_id = run("submit", "echo", "near", "--connect", "./jobs").stdout.strip()
    assert run("result", job_id, "--connect", "jobs").stdout == "near"
    assert run("result", job_id).stdout == "near"


def test_payload_is_the_bytes_that_were_given(shell: Shell) -> None:
    """A payload that is not UTF-8 is passed on unchanged, and --json prints the output as base64."""
    job_id = shell.run("job", "submit", "echo", "\udcff\udcfe").stdout.strip()
    assert json.loads(shell.run("job", "result", job_id, "--json").stdout)["output"] == {"base64": "//4="}


def test_hostile_output_does_not_reach_a_terminal(shell: Shell) -> None:
    """On a terminal escape sequences of a job's output are escaped, and a pipe gets every byte."""
    text = "\x1b]0;owned\x07\x1b[2Jfirst\nsecond\u202e"
    job_id = shell.run("job", "submit", "echo", "-", "-l", "k=\x1b[2J", stdin=text).stdout.strip()
    assert shell.run("job", "result", job_id).stdout == text
    for command in ("result", "get", "list", "watch", "history", "why"):
        status, seen = shell.at_terminal("job", command, *([] if command == "list" else [job_id]))
        assert status == 0
        assert "\x1b]0" not in seen
        assert "\x1b[2J" not in seen
        assert "\u202e" not in seen
    assert "first\r\nsecond" in shell.at_terminal("job", "result", job_id)[1]
