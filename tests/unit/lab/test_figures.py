"""Figures of a trial, computed from records with known results."""

import itertools
from collections.abc import Sequence

import pytest

from holdfast.proto import taskqueue_public_pb2 as pb
from holdfast_lab.compare.figures import ComparisonTrial, figures, spread
from holdfast_lab.compare.records import GIVEN_UP, LOST, OK, JobRun, Records, Request
from holdfast_lab.compare.trial import Costs, ProcessKill, TrialMeasurement
from holdfast_lab.compare.workloads import LIST, STATUS, SUBMIT, closed
from holdfast_lab.measure.numbers import percentile

SECOND = 1_000_000_000
MS = 1_000_000
BEGIN, END = 10 * SECOND, 12 * SECOND
UNAVAILABLE = 14


def told(
    requests: Sequence[Request] = (), jobs: Sequence[JobRun] = (), fault: ProcessKill | None = None
) -> ComparisonTrial:
    """Returns the figures of these rows in a window of two seconds."""
    records = Records()
    for request in requests:
        records.add_request(request)
    for job in jobs:
        records.add_job(job)
    measured = TrialMeasurement(records, BEGIN, END, Costs({}, clients_s=1.0, others_s=0.5), fault)
    return figures("one", closed("life-cycle", 1, 0, duration_s=2.0, warm_up_s=0.0), 0, measured, start_s=0.0)


def call(at: int, took_ms: float, *, method: int = SUBMIT, code: int = OK, late_ms: float = 0.0) -> Request:
    start = at + int(late_ms * MS)
    return Request(method, code, 0, at, start, start + int(took_ms * MS))


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1), (0.5, 50), (0.95, 95), (0.99, 99), (1.0, 100)])
def test_percentile_is_a_value_that_occurred(share: float, expected: float) -> None:
    """Of the values 1 to 100, the p-th percentile is p."""
    assert percentile([float(value) for value in range(1, 101)], share) == expected


def test_percentile_of_few_values() -> None:
    """The 99th percentile of three values is the largest, and the median is the middle one."""
    assert [percentile([1.0, 2.0, 9.0], share) for share in (0.5, 0.99)] == [2.0, 9.0]


def test_nothing_has_no_distribution() -> None:
    """There are no percentiles without values."""
    assert spread([]) is None


def test_latency_is_from_the_intended_start() -> None:
    """A request that began 50 ms late and took 1 ms has a latency of 51 ms."""
    trial = told([call(BEGIN, 1.0, late_ms=50.0)])
    assert trial.methods["SubmitJob"].latency is not None
    assert trial.methods["SubmitJob"].latency.p50 == 51.0


def test_rates_count_only_successful_requests_inside_the_window() -> None:
    """Rates exclude the warm-up, errors, listings, and requests that ended after the window."""
    trial = told(
        [
            call(BEGIN - 10 * MS, 5.0),
            call(BEGIN - 10 * MS, 20.0),
            call(BEGIN, 5.0, method=STATUS),
            call(BEGIN, 5.0, code=UNAVAILABLE),
            call(BEGIN, 5.0, method=LIST),
            call(END - MS, 5.0),
        ]
    )
    assert trial.requests_per_s == 1.0
    assert trial.errors == {"UNAVAILABLE": 1}
    assert trial.asked == 4
    assert trial.methods["ListJobs"].ok == 1
    assert trial.latency is not None
    assert trial.latency.count == 2


def test_submit_done_is_from_the_intended_submit_to_the_stated_finish() -> None:
    """Jobs that never ended have no duration, and are counted by their outcome."""
    jobs = [
        JobRun(BEGIN, BEGIN + MS, BEGIN + 30 * MS, BEGIN + 35 * MS, pb.DONE, 0),
        JobRun(BEGIN, BEGIN + MS, 0, END + SECOND, GIVEN_UP, 0),
        JobRun(BEGIN, BEGIN + MS, 0, BEGIN + SECOND, LOST, 0),
        JobRun(BEGIN - SECOND, BEGIN - SECOND, BEGIN + MS, BEGIN + 2 * MS, pb.DONE, 0),
    ]
    trial = told(jobs=jobs)
    assert trial.submit_done is not None
    assert (trial.submit_done.count, trial.submit_done.p50) == (1, 30.0)
    assert trial.jobs == {"done": 1, "given up": 1, "lost": 1}
    assert trial.jobs_per_s == 1.0


def test_job_that_seems_to_end_before_it_began_took_no_time() -> None:
    """A finish before the submit counts as 0 ms, because finishes have a precision of one millisecond."""
    trial = told(jobs=[JobRun(BEGIN, BEGIN + 1, BEGIN - MS // 2, BEGIN + MS, pb.DONE, 0)])
    assert trial.submit_done is not None
    assert trial.submit_done.p50 == 0.0


def test_cores_are_told_for_a_second() -> None:
    """One CPU second within two seconds is half a core."""
    trial = told()
    assert (trial.client_cores, trial.other_cores) == (0.5, 0.25)


def every_tenth(begin: int, end: int) -> list[JobRun]:
    """Returns jobs of 1 ms, ten per second."""
    return [JobRun(at, at, at + MS, at + 2 * MS, pb.DONE, 0) for at in range(begin, end, SECOND // 10)]


def test_gap_after_a_fault_is_found_even_beyond_the_load() -> None:
    """The gap reaches from the fault to the first finish, even if that is after the end of the load."""
    fault = ProcessKill("worker", 1, BEGIN + SECOND)
    stuck = JobRun(BEGIN + SECOND, BEGIN + SECOND, END + SECOND // 2, END + SECOND, pb.DONE, 0)
    trial = told(jobs=[*every_tenth(BEGIN, BEGIN + SECOND), stuck], fault=fault)
    assert trial.fault is not None
    assert trial.fault.gap_s == pytest.approx(1.5)
    assert trial.fault.slowest_ms == pytest.approx(1_500)


def test_timeline_adds_up_to_the_jobs_and_steps_evenly() -> None:
    """Every job after the first step is in exactly one step, and errors are in the step in which they happened."""
    fault = ProcessKill("worker", 1, BEGIN + SECOND)
    failed = [call(BEGIN + SECOND + 300 * MS, 1.0, code=UNAVAILABLE)]
    trial = told(failed, every_tenth(BEGIN, END), fault)
    assert trial.fault is not None
    steps = trial.fault.timeline
    widths = {round(later.at_s - earlier.at_s, 6) for earlier, later in itertools.pairwise(steps)}
    assert widths == {0.25}
    assert [one.at_s for one in steps if one.failed] == [0.25]
    assert sum(one.finished for one in steps) == sum(
        1 for one in every_tenth(BEGIN, END) if one.finished >= BEGIN + SECOND // 4
    )


def test_records_survive_the_wire_and_are_merged() -> None:
    """The rows of two clients are unchanged after packing and merging."""
    first, second = Records(), Records()
    first.add_request(call(BEGIN, 1.0))
    second.add_request(call(END, 2.0, method=LIST, code=UNAVAILABLE))
    second.add_job(JobRun(1, 2, 3, 4, LOST, 5))
    merged = Records.merged([first.pack(), second.pack()])
    assert list(merged.requests()) == [call(BEGIN, 1.0), call(END, 2.0, method=LIST, code=UNAVAILABLE)]
    assert list(merged.jobs()) == [JobRun(1, 2, 3, 4, LOST, 5)]
