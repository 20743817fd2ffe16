"""The timeline and the report of a run."""

from pathlib import Path

import pytest

from holdfast_lab.history.files import Writer, write_run
from holdfast_lab.history.records import Answered, Asked, Began, Broken, DamageFact, Ended, JobSpec, Lost, Record, Run
from holdfast_lab.torture import report
from holdfast_lab.torture.timeline import OTHERS, kills_of, lanes_of, timeline_of

SECOND = 1_000_000
RUN = Run(
    "embedded",
    7,
    faults=["kill", "stop"],
    left_out={"engine-crash": "it has none"},
    begun_us=10 * SECOND,
    faults_ended_us=14 * SECOND,
    drained_us=16 * SECOND,
    drain_bound_s=120.0,
    command="holdfast lab torture --seed 7",
)
RECORDS: list[Record] = [
    Asked(10 * SECOND, "a/1", "a", "submit", "grpc", [JobSpec("a-1"), JobSpec("a-2")]),
    Answered(11 * SECOND + 1, "a/1", ["1", "2"], existing=[1]),
    Asked(11 * SECOND, "a/2", "a", "get", "http", job_id="1"),
    Lost(12 * SECOND + 1, "a/2", "UNAVAILABLE"),
    Began(12 * SECOND, "r1", "1", 1, "99"),
    Ended(13 * SECOND + 1, "r1", "done"),
    Broken(12 * SECOND, 13 * SECOND, "kill", "worker worker-1, 2 times"),
    Broken(13 * SECOND, 14 * SECOND, "stop", "worker worker-1, 1.0 s"),
]


def test_rates_are_in_the_moments_in_which_something_happened() -> None:
    """Each bin holds the jobs acknowledged, ended or lost in it, per second."""
    timeline = timeline_of(RUN, RECORDS)
    assert timeline.bin_s == 0.5
    assert [index for index, rate in enumerate(timeline.acknowledged) if rate] == [2]
    assert timeline.acknowledged[2] == 2.0  # one of the two existed before
    assert timeline.lost[4] == timeline.ended[6] == 2.0
    assert (timeline.peace_s, timeline.drained_s) == (4.0, 6.0)


@pytest.mark.parametrize(
    ("target", "lanes"),
    [
        ("worker worker-1", ["worker-1"]),
        ("worker worker-1, 3 times", ["worker-1"]),
        ("node node-0, node node-1", ["node-0", "node-1"]),
        ("server server, 0.9 s, 480 ms each sync", ["server"]),
        ("road of the clients, 2.0 s", ["road of clients"]),
        ("worker-2: nothing from it for 5.5 s, then nothing to it for 4.0 s", ["worker-2"]),
        ("postgres", ["postgres"]),
        ("by +86400 s for 1.4 s", ["kill"]),
        ("full for 0.8 s", ["kill"]),
        ("", ["kill"]),
    ],
)
def test_lanes_have_the_names_of_fault_targets(target: str, lanes: list[str]) -> None:
    """Lanes have the names of the targets without details, or the kind of a fault without a particular target."""
    assert lanes_of(Broken(0, 1, "kill", target)) == lanes


@pytest.mark.parametrize(
    ("kind", "target", "kills"),
    [
        ("kill", "worker worker-1", 1),
        ("kill-starting", "worker worker-1, 3 times", 3),
        ("kill-many", "node node-0, node node-1", 2),
        ("cut", "road of the clients, 3 times", 0),
    ],
)
def test_kills_are_counted_by_process(kind: str, target: str, kills: int) -> None:
    """A process that is killed again while it starts counts again."""
    assert kills_of(Broken(0, 1, kind, target)) == kills


def test_lanes_are_bounded() -> None:
    """Surplus targets share the last lane."""
    many = [Broken(10 * SECOND, 11 * SECOND, "kill", f"node node-{number:02}") for number in range(40)]
    timeline = timeline_of(RUN, many)
    assert len(timeline.lanes) == 16
    assert timeline.lanes[-1] == OTHERS
    assert {bar.lane for bar in timeline.bars} == set(timeline.lanes)


def test_run_without_anything_has_a_timeline() -> None:
    """A run without records has a timeline."""
    assert timeline_of(Run("embedded", 1, begun_us=5), []).lanes == []


def test_report_has_all_its_parts_and_the_picture(tmp_path: Path) -> None:
    """The report has all its parts, and the picture beside it."""
    write_run(tmp_path, RUN)
    with Writer(tmp_path / "all.jsonl") as writer:
        for record in (*RECORDS, DamageFact("worker-2 ended by itself")):
            writer.write(record)
    report.write(tmp_path, "verdict: kept")
    text = (tmp_path / "report.md").read_text()
    assert (
        "2 jobs, 1 attempts and 2 faults in 4 s, 2 processes killed, 0 journal files trimmed; all jobs had "
        "ended 2.0 s after the last fault." in text
    )
    assert "| kill | 1 | worker-1 | 1.0 |" in text
    assert "| get | http | 1 | 0 | 0 | 1 |" in text
    assert "- engine-crash: it has none" in text
    assert "- worker-2 ended by itself" in text
    assert "verdict: kept" in text
    assert "$ holdfast lab torture --seed 7" in text
    assert "<svg" in (tmp_path / "timeline.svg").read_text()
    assert report.size_of(tmp_path).endswith("kB")


def test_report_of_a_run_that_did_not_drain_says_so() -> None:
    """The report says first that not all jobs had ended within the bound."""
    run = Run("embedded", 1, faults_ended_us=9 * SECOND, drain_bound_s=120.0)
    lines = report.report(run, report.numbers_of([]), "verdict: broken")
    assert "not all jobs had ended 120 s after the last fault." in lines[2]


def test_report_of_a_run_that_ended_early_claims_nothing_about_its_end() -> None:
    """The report of a run that ended early makes no claim about its end, and lists the active fault."""
    broken = [Broken(9 * SECOND, 10 * SECOND, "kill", note="given up")]
    run = Run("embedded", 1, ["kill"], begun_us=3 * SECOND, drain_bound_s=120.0)
    lines = report.report(run, report.numbers_of(broken), "verdict: unknown", "it was interrupted")
    assert (
        "1 faults in 7 s, 1 processes killed, 0 journal files trimmed; the run did not wait for all jobs to end."
        in lines[2]
    )
    assert lines[4] == "**It ended early: it was interrupted.**"
    assert "| kill | 1 | kill | 1.0 |" in lines
