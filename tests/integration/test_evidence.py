"""Evidence files of campaigns: written, read again, and with a command that repeats the run."""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from holdfast import __version__
from holdfast.errors import FailedPreconditionError
from holdfast_lab.check.judge import RULES
from holdfast_lab.cli import lab
from holdfast_lab.evidence import BROKEN, KEPT, UNKNOWN, Campaign, Evidence, RuleResult, commit, keep, read
from holdfast_lab.history.files import Writer, write_run
from holdfast_lab.simulation.__main__ import main as simulate
from holdfast_lab.torture import campaign
from holdfast_lab.torture.run import Tell, TortureSettings
from tests.fuzz.__main__ import main as fuzz
from tests.unit.lab_check.sound_history import sound

ROOT = Path(__file__).resolve().parents[2]


def some_evidence() -> Evidence:
    rules = [RuleResult("lost", KEPT, 12), RuleResult("early", UNKNOWN, why="no job had a delay")]
    return Campaign("torture", "embedded").end(
        seeds=(7, 7),
        command="holdfast lab torture --seed 7",
        verdict=UNKNOWN,
        rules=rules,
        numbers={"jobs": 12, "seconds": 1.5},
        findings=["one"],
        left_out={"partition": "only root may"},
    )


def only(folder: Path) -> Evidence:
    (path,) = folder.iterdir()
    return read(path)


# -- the file


def test_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    """An evidence file is small and reads back as it was written."""
    evidence = some_evidence()
    path = keep(tmp_path / "new", evidence)
    assert read(path) == evidence
    assert path.name.startswith("torture-embedded-20")
    assert path.name.endswith("Z-7.json")
    assert path.stat().st_size < 4_096


def test_file_of_another_campaign_is_left_alone(tmp_path: Path) -> None:
    """Two campaigns that began in the same second with the same seed get separate files."""
    evidence = some_evidence()
    first, second = keep(tmp_path, evidence), keep(tmp_path, replace(evidence, verdict=KEPT))
    assert first != second
    assert [read(first).verdict, read(second).verdict] == [UNKNOWN, KEPT]


def test_much_that_was_found_does_not_make_a_large_file(tmp_path: Path) -> None:
    """A file with many long findings keeps the first ones, shortened."""
    many = Campaign("fuzz").end(
        seeds=(1, 1), command="", verdict=BROKEN, rules=[], numbers={}, findings=["x" * 10_000] * 1_000
    )
    assert keep(tmp_path, many).stat().st_size < 16_384


@pytest.mark.parametrize("content", [b"", b"[]", b'{"kind": "torture"}', b"{" * 100])
def test_error_for_a_file_without_evidence_names_the_file(tmp_path: Path, content: bytes) -> None:
    """The error for a file that is no evidence names the file."""
    path = tmp_path / "some.json"
    path.write_bytes(content)
    with pytest.raises(FailedPreconditionError, match=r"some\.json"):
        read(path)
    with pytest.raises(FailedPreconditionError, match=r"none\.json"):
        read(tmp_path / "none.json")


@pytest.mark.parametrize("path", sorted((ROOT / "docs/evidence").glob("*.json")), ids=lambda path: path.name)
def test_kept_files_can_be_read(path: Path) -> None:
    """Every stored evidence file is readable, is named after its content, and has no absolute path in its command."""
    evidence = read(path)
    assert path.name.startswith(evidence.file_name.removesuffix(".json"))
    assert evidence.rules
    assert not [word for word in shlex.split(evidence.command) if word.startswith("/")]


# -- the commit


def git(folder: Path, *words: str) -> None:
    named = ["-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false"]
    program = shutil.which("git")
    assert program is not None
    subprocess.run([program, "-C", str(folder), *named, *words], check=True, capture_output=True)


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
def test_commit_is_dirty_after_a_change_of_the_code(tmp_path: Path) -> None:
    """The commit is dirty after a change of the code, but not of the evidence, and a version for untracked code."""
    code = tmp_path / "src" / "code.py"
    code.parent.mkdir()
    code.write_text("one")
    git(tmp_path, "init")
    assert commit(code) == __version__
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "code")
    clean = commit(code)
    assert len(clean) == 40
    (tmp_path / "docs" / "evidence").mkdir(parents=True)
    (tmp_path / "docs" / "evidence" / "run.json").write_text("{}")
    assert commit(code) == clean
    code.write_text("two")
    assert commit(code) == f"{clean}-dirty"


def test_code_outside_of_git_has_a_version(tmp_path: Path) -> None:
    """For code outside of Git the commit is the version of the package."""
    (tmp_path / "code.py").write_text("")
    assert commit(tmp_path / "code.py") == __version__


# -- the programs that write it


def test_command_of_a_torture_repeats_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command in the evidence of a torture run repeats it with the same settings, and every rule is listed."""
    asked: list[TortureSettings] = []

    async def perform(settings: TortureSettings, tell: Tell) -> str:
        tell("")
        asked.append(settings)
        run, records = sound()
        write_run(settings.folder, replace(run, seed=settings.seed, command=settings.command, trimmed=3))
        with Writer(settings.folder / "all.jsonl") as writer:
            for record in records:
                writer.write(record)
        return ""

    monkeypatch.setattr(campaign, "perform", perform)
    words = ["torture", "--minutes", "0.25", "--faults", "kill,resets"]
    first = CliRunner().invoke(lab.app, [*words, "--out", str(tmp_path / "1"), "--evidence", str(tmp_path / "kept")])
    assert first.exit_code == 0, first.output
    evidence = only(tmp_path / "kept")
    holdfast, group, *again = shlex.split(evidence.command)
    assert (holdfast, group) == ("holdfast", "lab")
    CliRunner().invoke(lab.app, [*again, "--out", str(tmp_path / "2")])
    assert replace(asked[1], folder=asked[0].folder) == asked[0]
    assert (evidence.kind, evidence.topology, evidence.verdict) == ("torture", "embedded", KEPT)
    assert (evidence.first_seed, evidence.last_seed) == (asked[0].seed, asked[0].seed)
    assert [one.rule for one in evidence.rules] == [rule.name for rule in RULES]
    assert evidence.numbers["journal files trimmed"] == 3
    assert evidence.numbers["fault kill"] == 1


def test_command_of_a_sweep_repeats_it(tmp_path: Path) -> None:
    """The command in the evidence of a sweep repeats it with the same numbers, rules and verdict."""
    words = ["--seeds", "3:5", "--events", "300", "--jobs", "1"]
    assert simulate([*words, "--evidence", str(tmp_path / "first")]) == 0
    first = only(tmp_path / "first")
    python, dash_m, module, *again = shlex.split(first.command)
    assert (python, dash_m, module) == ("python", "-m", "holdfast_lab.simulation")
    assert simulate([*again, "--jobs", "1", "--evidence", str(tmp_path / "second")]) == 0
    second = only(tmp_path / "second")
    assert (first.first_seed, first.last_seed) == (3, 4)
    assert (second.numbers, second.rules, second.command) == (first.numbers, first.rules, first.command)
    assert first.numbers["seeds"] == 2


def test_one_seed_of_the_simulator_is_kept_too(tmp_path: Path) -> None:
    """The evidence of one simulated seed is that of a sweep of one seed."""
    assert simulate(["--seed", "3", "--events", "300", "--evidence", str(tmp_path)]) == 0
    evidence = only(tmp_path)
    assert (evidence.first_seed, evidence.last_seed, evidence.numbers["seeds"]) == (3, 3, 1)
    assert evidence.verdict == UNKNOWN


def test_command_of_a_search_for_bad_inputs_repeats_it(tmp_path: Path) -> None:
    """The command in the evidence of a fuzz run has its target, time and seed, and the rules count the inputs."""
    words = ["--minutes", "0.005", "--target", "strict_json", "--seed", "11"]
    assert fuzz([*words, "--evidence", str(tmp_path)]) == 0
    evidence = only(tmp_path)
    assert shlex.split(evidence.command) == ["python", "-m", "tests.fuzz", *words]
    assert evidence.verdict == KEPT
    assert evidence.numbers["inputs"] == sum(one.cases for one in evidence.rules) > 0


TESTS = """
import pytest

def test_good():
    print("12 jobs, 3 kills")

def test_bad():
    assert 1 == 2

def test_not_here():
    pytest.skip("there is no engine")
"""


def test_campaign_of_kills_keeps_the_verdict_of_each_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The evidence of kill tests has each test's verdict, and its command has the settings that they read."""
    (tmp_path / "test_some_kills.py").write_text(TESTS)
    monkeypatch.setenv("KILLS", "2")
    monkeypatch.setenv("SEED", "5")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    command = [sys.executable, "-m", "pytest", "-p", "tests.e2e.kill_evidence", "-p", "no:cacheprovider"]
    options = ["--evidence", str(tmp_path / "kept"), "test_some_kills.py"]
    subprocess.run([*command, *options], cwd=tmp_path, capture_output=True, check=False)
    evidence = only(tmp_path / "kept")
    found = {one.rule.partition("::")[2]: (one.verdict, one.why) for one in evidence.rules}
    assert found["test_good"] == (KEPT, "12 jobs, 3 kills")
    assert found["test_bad"][0] == BROKEN
    assert found["test_not_here"][0] == UNKNOWN
    assert "there is no engine" in found["test_not_here"][1]
    assert (evidence.verdict, evidence.first_seed) == (BROKEN, 5)
    assert evidence.command == "KILLS=2 SEED=5 python -m pytest tests/e2e/test_some_kills.py"
    assert msgspec.json.decode(msgspec.json.encode(evidence), type=Evidence) == evidence
