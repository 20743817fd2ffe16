"""Tests of `python -m holdfast_lab.simulation`."""

from pathlib import Path

import pytest

from holdfast_lab.simulation import __main__ as cli
from holdfast_lab.simulation import regressions, runner
from holdfast_lab.simulation.swarm import SwarmSettings, draw
from holdfast_lab.simulation.world import RunOutcome


def outcome_of(settings: SwarmSettings, failure: str, steps: int = 100) -> RunOutcome:
    return RunOutcome(
        settings=settings,
        failure=failure,
        steps=steps,
        simulated_ms=1,
        digest="",
        fired={},
        done={},
        missing=[],
        tail=["the last event"],
    )


def test_range_of_seeds_reports_and_ends_well(capsys: pytest.CaptureFixture[str]) -> None:
    """A sweep without a finding exits 0 and reports the number of seeds."""
    assert cli.main(["--seeds", "0:3", "--events", "300", "--jobs", "1"]) == 0
    assert "3 seeds" in capsys.readouterr().out


def test_time_boxed_search_ends(capsys: pytest.CaptureFixture[str]) -> None:
    """A search by time runs fresh seeds in its own processes and ends soon after its time limit."""
    assert cli.main(["--minutes", "0.01", "--events", "100", "--jobs", "2"]) == 0
    assert "events/s per core" in capsys.readouterr().out


def test_replay_prints_everything_of_a_seed(capsys: pytest.CaptureFixture[str]) -> None:
    """A replay prints the seed first, then the swarm, the outcome and the digest."""
    assert cli.main(["--seed", "4", "--events", "300"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "SEED=4"
    assert "lease_ms=" in lines[1]
    assert lines[-1].startswith("digest: ")


def test_finding_is_named_minimised_and_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A failing seed is printed first, and its smallest run is added to the regressions once."""
    path = tmp_path / "regressions.txt"
    needed = next(iter(draw(9, 400).faults))

    def run(settings: SwarmSettings) -> RunOutcome:
        is_broken = needed in settings.faults and settings.events >= 40
        return outcome_of(settings, "it broke" if is_broken else "", steps=min(settings.events, 300))

    monkeypatch.setattr(cli, "REGRESSIONS", path)
    monkeypatch.setattr(runner, "run_settings", run)
    monkeypatch.setattr(runner.Sweep, "over", lambda *_: iter([run(draw(9, 400))]))
    assert cli.main(["--seeds", "9:10", "--events", "400"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["SEED=9", "broken: it broke"]
    assert "  the last event" in lines
    (settings,) = regressions.read_all(path)
    assert list(settings.faults) == [needed]
    assert 40 <= settings.events <= 45
    assert cli.main(["--seeds", "9:10", "--events", "400"]) == 1
    assert len(path.read_text().splitlines()) == 1


def test_comments_and_blank_lines_are_no_regressions() -> None:
    """Only a line that begins with a seed is a regression."""
    assert regressions.read_line("# nothing") is None
    assert regressions.read_line("") is None
    assert regressions.read_line("7 500  # found") == draw(7, 500)
