"""Immutable views of the ledger's records."""

from holdfast.core.ledger import Ledger
from holdfast.core.lifecycle import RUNNING, State
from holdfast.core.model import JobRecord, Schedule
from holdfast.core.outcomes import result_summary
from holdfast.core.progress import ProgressBoard
from holdfast.ports import JobView, Progress, ResultView, ScheduleView


def job_view(ledger: Ledger, job: JobRecord, board: ProgressBoard | None = None) -> JobView:
    """Returns the view of a job for clients; a running job has the progress of its lease."""
    is_running = job.state == RUNNING
    said = board.get(job.token) if board is not None and is_running else None
    return JobView(
        job.id,
        job.template,
        State(job.state),
        job.created_ms,
        job.started_ms,
        job.finished_ms,
        job.not_before_ms,
        job.cancel_requested,
        job.result.failure_reason if job.result else "",
        job.attempts,
        job.extra,
        job.failed_attempts,
        job.losses,
        job.token,
        ledger.state.leases[job.token].worker if is_running else "",
        Progress(max(0, said.permille), said.message, said.at_ms) if said is not None else None,
    )


def result_view(job: JobRecord) -> ResultView:
    """Returns the result of a job; only its state if it has not ended."""
    result = job.result
    if result is None:
        return ResultView(State(job.state))
    summary = result_summary(job.state, reason=result.failure_reason, summary=result.summary)
    return ResultView(State(job.state), result.output, summary, result.runtime_ms)


def schedule_view(schedule: Schedule) -> ScheduleView:
    """Returns the view of a schedule for clients."""
    return ScheduleView(
        schedule.spec,
        schedule.is_paused,
        schedule.created_ms,
        schedule.next_ms,
        schedule.last_tick_ms,
        schedule.last_job_id,
        schedule.fired,
        schedule.skipped,
        schedule.missed,
    )
