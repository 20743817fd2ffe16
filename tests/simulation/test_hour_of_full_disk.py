"""A disk that stays full for an hour while workers keep running."""

from holdfast_lab.faults.full_disk import FullDiskPlan, FullDiskRun


def test_hour_of_full_disk_costs_no_finished_work() -> None:
    """200 workers finish jobs and send heartbeats for an hour on a full disk, and each job is executed exactly once."""
    figures = FullDiskRun(FullDiskPlan(heartbeat_ms=5_000)).run()
    assert figures.finished_while_full > FullDiskPlan().workers
    assert figures.recorded_while_full < figures.finished_while_full  # some had to wait for space
    assert (figures.done, figures.executed_twice) == (figures.jobs, 0)
    assert (figures.leases_lost, figures.reports_refused) == (0, 0)
