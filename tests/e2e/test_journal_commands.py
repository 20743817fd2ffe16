"""`holdfast journal` on the directory of a server, while it runs and after it has ended."""

import json
from collections.abc import Callable, Iterator

import pytest

from tests.e2e.loaded import LoadedProgram, LoadedShell
from tests.e2e.loaded_fleet import loaded_fleet_in
from tests.e2e.shell import Done, Shell

Run = Callable[..., Done]


@pytest.fixture(scope="module")
def shell(loaded: LoadedProgram, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A prompt beside one server, which still runs, with its data in the folder `kept`; all only read it."""
    with loaded_fleet_in(tmp_path_factory.mktemp("journal"), loaded) as fleet:
        address = fleet.start("up", "--port", "0", "--data", "kept").ready()["grpc"]
        yield LoadedShell(loaded, fleet.folder, address)


@pytest.fixture(scope="module")
def job_id(shell: Shell) -> str:
    """The one job that ran on that server."""
    submitted = shell.run("job", "submit", "echo", "x", "--wait")
    assert submitted.returncode == 0, submitted.stderr
    return submitted.stderr.strip()


@pytest.fixture
def run(shell: Shell) -> Run:
    """Runs `holdfast journal …`."""
    return lambda *arguments: shell.run("journal", *arguments)


def test_history_of_a_job_is_shown_while_its_server_runs(run: Run, job_id: str) -> None:
    """From its submission to its end, with positions, worker and token."""
    told = json.loads(run("history", "kept", job_id, "--json").stdout)
    assert [entry["what"] for entry in told] == ["submitted", "granted", "finished"]
    assert [entry["state"] for entry in told] == ["QUEUED", "RUNNING", "DONE"]
    assert told[1]["token"] == told[2]["token"] == 1


def test_past_of_the_whole_system_is_shown(run: Run, job_id: str) -> None:
    """At the position of its grant the job is leased; the digest there differs from the one at the end."""
    granted = json.loads(run("history", "kept", job_id, "--json").stdout)[1]["position"]
    then = json.loads(run("replay", "kept", "--at", str(granted), "--json").stdout)
    assert [lease["job_id"] for lease in then["leases"]] == [job_id]
    digests = [run("digest", "kept", *at).stdout for at in (["--at", str(granted)], [])]
    assert digests[0].split()[0] == then["digest"] != digests[1].split()[0]


def test_journal_of_a_running_server_is_proven_without_disturbing_it(run: Run, job_id: str) -> None:
    """`verify` says what it went through; the server keeps its lock and its directory as they were."""
    proof = run("verify", "kept")
    assert (proof.returncode, proof.stdout.startswith("sound: ")) == (0, True)
    part, whole = (run("show", "kept", "--limit", limit) for limit in ("2", "3"))
    assert (part.stdout.count(job_id), "there is more than these 2" in part.stderr) == (2, True)
    assert (whole.stdout.count(job_id), whole.stderr) == (3, "")


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("verify", "nowhere"), 4, "there is no directory"),
        (("show", "."), 4, "there is no journal"),
        (("history", "kept", "nobody"), 4, "says nothing about"),
        (("replay", "kept", "--at", "yesterday"), 2, "a position or a time"),
    ],
)
@pytest.mark.usefixtures("job_id")
def test_mistakes_get_a_sentence(run: Run, arguments: tuple[str, ...], status: int, words: str) -> None:
    """No mistake leads to a traceback."""
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr
