"""`holdfast journal` on the directory of a running server."""

import json
from collections.abc import Callable, Iterator

import pytest

from tests.e2e.preloaded_fleet import loaded_fleet_in
from tests.e2e.preloaded_prompt import LoadedProgram, LoadedShell
from tests.e2e.shell import Done, Shell

Run = Callable[..., Done]


@pytest.fixture(scope="module")
def shell(loaded: LoadedProgram, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A shell with one running server, whose directory `kept` the tests only read."""
    with loaded_fleet_in(tmp_path_factory.mktemp("journal"), loaded) as fleet:
        address = fleet.start("up", "--port", "0", "--data", "kept").ready()["grpc"]
        yield LoadedShell(loaded, fleet.folder, address)


@pytest.fixture(scope="module")
def job_id(shell: Shell) -> str:
    """The id of the only job on that server, which has finished."""
    submitted = shell.run("job", "submit", "echo", "x", "--wait")
    assert submitted.returncode == 0, submitted.stderr
    return submitted.stderr.strip()


@pytest.fixture
def run(shell: Shell) -> Run:
    """A function that runs `holdfast journal …`."""
    return lambda *arguments: shell.run("journal", *arguments)


def test_history_of_a_job_is_shown_while_its_server_runs(run: Run, job_id: str) -> None:
    """`journal history` prints the events of a job with state and token while the server runs."""
    told = json.loads(run("history", "kept", job_id, "--json").stdout)
    assert [entry["what"] for entry in told] == ["submitted", "granted", "finished"]
    assert [entry["state"] for entry in told] == ["QUEUED", "RUNNING", "DONE"]
    assert told[1]["token"] == told[2]["token"] == 1


def test_past_of_the_whole_system_is_shown(run: Run, job_id: str) -> None:
    """`journal replay --at` a job's grant shows its lease, and the digest there differs from the last one."""
    granted = json.loads(run("history", "kept", job_id, "--json").stdout)[1]["position"]
    then = json.loads(run("replay", "kept", "--at", str(granted), "--json").stdout)
    assert [lease["job_id"] for lease in then["leases"]] == [job_id]
    digests = [run("digest", "kept", *at).stdout for at in (["--at", str(granted)], [])]
    assert digests[0].split()[0] == then["digest"] != digests[1].split()[0]


def test_journal_of_a_running_server_is_proven_without_disturbing_it(run: Run, job_id: str) -> None:
    """`journal verify` and `journal show` read the journal of a running server."""
    proof = run("verify", "kept")
    assert (proof.returncode, proof.stdout.startswith("sound: ")) == (0, True)
    part, whole = (run("show", "kept", "--limit", limit) for limit in ("2", "3"))
    assert (part.stdout.count(job_id), "only 2 lines are shown" in part.stderr) == (2, True)
    assert (whole.stdout.count(job_id), whole.stderr) == (3, "")


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("verify", "nowhere"), 4, "'nowhere' does not exist"),
        (("show", "."), 4, "contains no journal"),
        (("history", "kept", "nobody"), 4, "has no events of job"),
        (("replay", "kept", "--at", "yesterday"), 2, "a position or a time"),
    ],
)
@pytest.mark.usefixtures("job_id")
def test_mistakes_get_a_sentence(run: Run, arguments: tuple[str, ...], status: int, words: str) -> None:
    """A wrong journal command prints a message and no traceback."""
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr
