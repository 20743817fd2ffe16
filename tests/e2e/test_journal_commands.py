"""`holdfast journal` on the directory of a server, while it runs and after it has ended."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.e2e.fleet import HOLDFAST, Fleet, clean_environment


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`holdfast` with these arguments, in the folder of a fleet."""
    return subprocess.run(
        [*HOLDFAST, *arguments],
        capture_output=True,
        text=True,
        env=clean_environment({}),
        cwd=folder,
        check=False,
        timeout=60,
    )


@pytest.fixture
def job_id(fleet: Fleet) -> str:
    """A job that ran on a server which still runs, with its data in the folder `kept`."""
    address = fleet.start("up", "--port", "0", "--data", "kept").ready()["grpc"]
    submitted = run(fleet.folder, "job", "submit", "echo", "x", "--wait", "--connect", address)
    assert submitted.returncode == 0, submitted.stderr
    return submitted.stderr.strip()


def test_history_of_a_job_is_shown_while_its_server_runs(fleet: Fleet, job_id: str) -> None:
    """From its submission to its end, with positions, worker and token."""
    told = json.loads(run(fleet.folder, "journal", "history", "kept", job_id, "--json").stdout)
    assert [entry["what"] for entry in told] == ["submitted", "granted", "finished"]
    assert [entry["state"] for entry in told] == ["QUEUED", "RUNNING", "DONE"]
    assert told[1]["token"] == told[2]["token"] == 1


def test_past_of_the_whole_system_is_shown(fleet: Fleet, job_id: str) -> None:
    """At the position of its grant the job is leased; the digest there differs from the one at the end."""
    granted = json.loads(run(fleet.folder, "journal", "history", "kept", job_id, "--json").stdout)[1]["position"]
    then = json.loads(run(fleet.folder, "journal", "replay", "kept", "--at", str(granted), "--json").stdout)
    assert [lease["job_id"] for lease in then["leases"]] == [job_id]
    digests = [run(fleet.folder, "journal", "digest", "kept", *at).stdout for at in (["--at", str(granted)], [])]
    assert digests[0].split()[0] == then["digest"] != digests[1].split()[0]


def test_journal_of_a_running_server_is_proven_without_disturbing_it(fleet: Fleet, job_id: str) -> None:
    """`verify` says what it went through; the server keeps its lock and its directory as they were."""
    proof = run(fleet.folder, "journal", "verify", "kept")
    assert (proof.returncode, proof.stdout.startswith("sound: ")) == (0, True)
    part, whole = (run(fleet.folder, "journal", "show", "kept", "--limit", limit) for limit in ("2", "3"))
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
def test_mistakes_get_a_sentence(fleet: Fleet, arguments: tuple[str, ...], status: int, words: str) -> None:
    """No mistake leads to a traceback."""
    done = run(fleet.folder, "journal", *arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr
