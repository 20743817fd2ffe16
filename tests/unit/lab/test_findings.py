"""Findings from known numbers are known sentences."""

from typing import Any

import msgspec
import pytest

from holdfast_lab.compare.figures import FaultFigures, TimelineStep
from holdfast_lab.compare.findings import findings
from holdfast_lab.compare.messages import Messages
from holdfast_lab.compare.results import ComparisonResults
from holdfast_lab.compare.significance import ComparisonVerdict, chance, verdict
from holdfast_lab.compare.workloads import through_fault
from tests.unit.lab.synthetic import SPAN, results, series, trial


def sentences(found: ComparisonResults, heading: str = "quick and slow") -> str:
    return "\n".join(findings(found)[heading])


def line(found: ComparisonResults, begin: str, heading: str = "quick and slow") -> str:
    (only,) = [one for one in findings(found)[heading] if one.startswith(f"**{begin}")]
    return only


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([3, 4, 5], [1, 2, 2.9], ComparisonVerdict.FIRST),
        ([1, 2, 2.9], [3, 4, 5], ComparisonVerdict.SECOND),
        ([1, 2, 3], [3, 4, 5], ComparisonVerdict.NO_DIFFERENCE),
        ([1, 2, 300], [3, 4, 5], ComparisonVerdict.NO_DIFFERENCE),
        ([1, 1, 1], [1, 1, 1], ComparisonVerdict.NO_DIFFERENCE),
        ([3, 4], [1, 2, 2], ComparisonVerdict.TOO_FEW),
        ([], [1, 2, 2], ComparisonVerdict.TOO_FEW),
    ],
)
def test_only_ranges_apart_make_a_difference(
    first: list[float], second: list[float], expected: ComparisonVerdict
) -> None:
    """One side is better if its worst run beats the other's best run, and never with only two runs."""
    assert verdict(first, second, is_more_better=True) is expected


def test_less_can_be_better() -> None:
    """For times and costs the smaller value wins."""
    assert verdict([1, 1, 1], [2, 2, 2], is_more_better=False) is ComparisonVerdict.FIRST


def test_chance_of_a_false_difference_is_told() -> None:
    """Of the twenty orders of six equal runs, two put all runs of one side above all of the other."""
    assert chance(3) == pytest.approx(0.1)


def test_clear_winner_is_named_with_its_factor() -> None:
    """Twice the rate in every run makes a winner by a factor of two, in every metric that follows from it."""
    (one,) = series(8)
    found = results({"quick": {one.name: [200, 202, 198]}, "slow": {one.name: [100, 101, 99]}}, [one])
    assert line(found, "requests") == (
        "**requests per second**: quick is ahead of slow in the one workload, by a factor of 2."
    )
    assert "quick is quicker than slow" in line(found, "SubmitJob, p50")
    assert "quick is cheaper than slow" in line(found, "CPU")


def test_overlap_is_no_difference_however_far_the_medians_are() -> None:
    """One bad run of the better side prevents a claim, and the ranges are shown."""
    (one,) = series(8)
    found = results({"quick": {one.name: [90, 300, 310]}, "slow": {one.name: [99, 100, 101]}}, [one])
    told = line(found, "requests")
    assert told.startswith("**requests per second**: no difference in the one workload")
    assert "90\u2013310 and 99\u2013101 req/s" in told
    assert "is ahead of" not in told


def test_equal_numbers_are_no_difference() -> None:
    """Equal memory is reported as no difference."""
    (one,) = series(8)
    found = results({"quick": {one.name: [200, 202, 198]}, "slow": {one.name: [100, 101, 99]}}, [one])
    assert "no difference" in line(found, "memory")


def test_crossing_curves_are_told() -> None:
    """Curves cross if one side is ahead at concurrency 1 and behind at 64."""
    low, middle, high = series(1, 8, 64)
    found = results(
        {
            "quick": {low.name: [200, 201, 202], middle.name: [300, 301, 302], high.name: [300, 301, 302]},
            "slow": {low.name: [100, 101, 102], middle.name: [299, 300, 303], high.name: [600, 601, 602]},
        },
        [low, middle, high],
    )
    assert "quick is ahead at 1 and slow is ahead at 64 in flight" in line(found, "the curves cross")
    assert "no difference in read-heavy c8 0ms" in line(found, "requests")


def test_parallel_curves_do_not_cross() -> None:
    """A side that is ahead everywhere does not cross."""
    low, high = series(1, 64)
    rates = {"quick": {one.name: [200.0, 201, 202] for one in (low, high)}}
    rates["slow"] = {one.name: [100.0, 101, 102] for one in (low, high)}
    assert "cross" not in sentences(results(rates, [low, high]))


def test_missing_runs_forbid_a_claim_and_are_named() -> None:
    """Two runs and a refusal allow no claim, and the refused run is listed with its reason."""
    (one,) = series(8)
    found = results(
        {"quick": {one.name: [200, 202, 198]}, "slow": {one.name: [100, 101]}}, [one], refused={"slow": "no port"}
    )
    told = line(found, "requests")
    assert "nothing can be said of read-heavy c8 0ms: fewer than 3 runs on one side" in told
    assert "is ahead of" not in told
    assert sentences(found, "What failed") == "Run 3 of slow, read-heavy c8 0ms, gave no figures: no port."


def test_topology_without_any_run_is_not_compared() -> None:
    """With refusals only, no sentence claims anything, and the report can still be made."""
    (one,) = series(8)
    found = results({"quick": {one.name: [200, 202, 198]}, "slow": {}}, [one], refused={"slow": "not there"})
    assert "is ahead of" not in sentences(found)
    assert "nothing can be said" in sentences(found)


def test_errors_are_counted_and_stand_beside_a_claim() -> None:
    """A winner with more than one percent of failed requests is named together with that fact."""
    (one,) = series(8)
    found = results(
        {"quick": {one.name: [200, 202, 198]}, "slow": {one.name: [100, 101, 99]}}, [one], errors={"quick": 10}
    )
    assert "(with more than 1 % of the requests failed in read-heavy c8 0ms)" in line(found, "requests")
    assert sentences(found, "What failed") == "quick, read-heavy c8 0ms: 60 of 660 requests failed (UNAVAILABLE 60)."


def test_nothing_failed_is_said() -> None:
    """The report says explicitly that nothing failed."""
    (one,) = series(8)
    found = results({"quick": {one.name: [2, 2, 2]}, "slow": {one.name: [1, 1, 1]}}, [one])
    assert sentences(found, "What failed") == "Nothing."


def test_many_workloads_are_summed_up() -> None:
    """A side that wins four of five workloads by different factors is reported with the range of the factors."""
    loads = series(1, 2, 4, 8, 16)
    quick = {one.name: [200.0 * step, 201.0 * step, 202.0 * step] for step, one in enumerate(loads, start=1)}
    slow = {one.name: [100.0, 101, 102] for one in loads}
    slow[loads[0].name] = [150, 200, 250]
    told = line(results({"quick": quick, "slow": slow}, loads), "requests")
    assert "quick is ahead of slow in 4 of 5 workloads, by a factor of 3.98 to 9.95" in told
    assert "no difference in read-heavy c1 0ms (read-heavy c1 0ms: 200\u2013202 and 150\u2013250 req/s)" in told


def test_messages_are_told_and_a_failed_count_too() -> None:
    """Message counts are shown side by side, and a count that could not be made is a failure with its reason."""
    (one,) = series(8)
    rates = {"quick": {one.name: [2.0, 2, 2]}, "slow": {one.name: [1.0, 1, 1]}}
    both = results(rates, [one], messages=[Messages("quick", 10, {"/a/B": 40}), Messages("slow", 10, {"/a/B": 180})])
    assert "quick 4, slow 18" in line(both, "messages per job")
    half = results(rates, [one], messages=[Messages("quick", 10, {"/a/B": 40}), Messages("slow", 10, refusal="silent")])
    assert "messages per job" not in sentences(half)
    assert sentences(half, "What failed") == "The messages of slow could not be counted: silent."


def test_report_of_a_fault_has_the_gap_and_the_lost_jobs() -> None:
    """The report of a fault has the gap, the slowest job, and the jobs that were never seen to end."""
    load = through_fault(20, 10, **SPAN)
    rates = {"quick": {load.name: [20.0, 20, 20]}}
    found = results(rates, [load])
    fault = FaultFigures("worker", 1.0, [TimelineStep(0.0, 1, 0, 5.0)], gap_s=1.5, slowest_ms=2_500)
    broken: list[Any] = [
        msgspec.structs.replace(one, fault=fault, jobs={"done": 98, "lost": 2}) for one in found.trials
    ]
    told = sentences(msgspec.structs.replace(found, trials=broken), "Through the fault")
    assert "no job finished for 1.50 s" in told
    assert "the slowest job took 2.50 s" in told
    assert "of 300 accepted jobs 6 were not seen to end (6 unknown afterwards, 0 still waited for)" in told


def test_trouble_at_the_end_of_a_trial_is_told() -> None:
    """A process that had to be killed at the end of a trial is reported."""
    (one,) = series(8)
    found = results({"quick": {one.name: [2, 2]}, "slow": {one.name: [1, 1, 1]}}, [one])
    found.trials.append(msgspec.structs.replace(trial("quick", one.name, 2, 2.0), troubles=["had to be killed"]))
    assert sentences(found, "What failed") == "quick, read-heavy c8 0ms, run 3: had to be killed."


@pytest.mark.parametrize(
    ("cores", "words"), [(0.05, "it was idle but for the trials"), (0.9, "in 1 of 6 trials more than 0.2")]
)
def test_disturbed_machine_is_told(cores: float, words: str) -> None:
    """Other processor load during a trial is reported, because it makes the figures doubtful."""
    (one,) = series(8)
    found = results({"quick": {one.name: [2, 2, 2]}, "slow": {one.name: [1, 1, 1]}}, [one])
    found.trials[0] = msgspec.structs.replace(found.trials[0], other_cores=cores)
    assert words in sentences(found, "How far to trust this")


def test_too_few_runs_are_said_to_claim_nothing() -> None:
    """With two runs the report states the rule, without a meaningless probability."""
    (one,) = series(8)
    found = results({"quick": {one.name: [2, 2]}, "slow": {one.name: [1, 1]}}, [one])
    few = msgspec.structs.replace(found, plan=msgspec.structs.replace(found.plan, runs=2))
    assert sentences(few).startswith("Nothing is claimed from fewer than 3 runs")
    assert "is ahead of" not in sentences(few)
    assert "here there were 2, so nothing is claimed" in sentences(few, "How far to trust this")
