"""Jobs, results and history entries as JSON, with the terms of the glossary, or as text."""

from collections.abc import Sequence

import msgspec

from holdfast.cli.text import as_moment, as_span, as_time, indented, plain, print_json, print_table
from holdfast.core.failure import Failure, failure_of
from holdfast.core.history import Entry
from holdfast.core.lifecycle import FAILED, RUNNING, TERMINAL
from holdfast.core.model import Extra
from holdfast.ports import JobView, ResultView

_PERMILLE_DONE = 1_000


def job_json(job: JobView) -> dict[str, object]:
    """Returns all data of a job for JSON; times are in milliseconds since 1970, 0 if there is none."""
    template, extra = job.template, job.extra or Extra()
    progress = job.progress
    return {
        "job_id": job.id,
        "state": job.state.name,
        "type": template.type,
        "queue": template.queue,
        "priority": template.priority,
        "created_at_ms": job.created_ms,
        "started_at_ms": job.started_ms,
        "finished_at_ms": job.finished_ms,
        "not_before_ms": job.not_before_ms,
        "attempts": job.attempts,
        "max_attempts": template.max_attempts,
        "failures": job.failures,
        "losses": job.losses,
        "timeout_ms": template.timeout_ms,
        "cancel_requested": job.cancel_requested,
        "failure_reason": job.failure_reason,
        "worker_id": job.worker,
        "token": job.token,
        "progress": progress and {"permille": progress.permille, "message": progress.message, "at_ms": progress.at_ms},
        "request_id": extra.request_id,
        "unique_key": extra.unique_key,
        "retry_of": extra.retry_of,
        "labels": dict(extra.labels),
        "headers": dict(extra.headers),
    }


def result_json(job: JobView, result: ResultView) -> dict[str, object]:
    """Returns the result of a job for JSON; `failure` is the exception of a job that failed with one."""
    failure = failure_of(result.output) if result.state == FAILED else Failure()
    return {
        "job_id": job.id,
        "state": job.state.name,
        "output": plain(result.output),
        "summary": result.summary,
        "failure_reason": job.failure_reason,
        "failure": msgspec.to_builtins(failure) if failure != Failure() else None,
        "runtime_ms": result.runtime_ms,
    }


def entry_json(entry: Entry) -> dict[str, object]:
    """Returns one history entry for JSON."""
    return {
        "position": entry.position,
        "at_ms": entry.at_ms,
        "job_id": entry.job_id,
        "what": entry.what,
        "state": entry.state,
        "worker_id": entry.worker,
        "token": entry.token,
        "reason": entry.reason,
        "detail": entry.detail,
    }


def job_fields(job: JobView) -> list[tuple[str, str]]:
    """Returns labels and values of a job; values that do not apply are empty."""
    template, extra = job.template, job.extra or Extra()
    is_over = job.state in TERMINAL
    return [
        ("id", job.id),
        ("state", job.state.name + (" (cancel requested)" if job.cancel_requested and not is_over else "")),
        ("progress", progress_words(job)),
        ("type", template.type),
        ("queue", template.queue),
        ("priority", str(template.priority)),
        ("created", as_time(job.created_ms)),
        ("due", as_time(job.not_before_ms) if job.not_before_ms > job.created_ms else ""),
        ("started", as_time(job.started_ms)),
        ("finished", as_time(job.finished_ms)),
        ("attempts", _attempts(job)),
        ("worker", job.worker),
        ("failure", job.failure_reason),
        ("labels", pairs(extra.labels)),
        ("request id", extra.request_id),
        ("unique key", extra.unique_key),
        ("retry of", extra.retry_of),
    ]


def print_jobs(jobs: Sequence[JobView]) -> None:
    """Prints one line per job."""
    rows = [
        (job.id, job.state.name, job.template.type, job.template.queue, as_moment(job.created_ms), _note(job))
        for job in jobs
    ]
    print_table(("ID", "STATE", "TYPE", "QUEUE", "CREATED", "NOTE"), rows, "no jobs")


def print_entries(found: Sequence[Entry], *, as_json: bool, has_ids: bool) -> None:
    """Prints one line per entry, and below them the tracebacks of failed attempts."""
    if as_json:
        print_json([entry_json(entry) for entry in found])
        return
    columns = ["POSITION", "TIME", *(["JOB"] if has_ids else []), "EVENT", "STATE", "WORKER", "TOKEN", "REASON"]
    rows = [
        [
            str(entry.position),
            as_moment(entry.at_ms),
            *([entry.job_id] if has_ids else []),
            entry.what,
            entry.state,
            entry.worker,
            str(entry.token or ""),
            entry.reason,
        ]
        for entry in found
    ]
    print_table(columns, rows)
    for entry in found:
        if entry.detail:
            print(f"\nfailure at position {entry.position}\n{indented(entry.detail)}")


def progress_words(job: JobView) -> str:
    """Returns the progress that a running job has reported."""
    if job.progress is None or job.state != RUNNING:
        return ""
    share = f"{job.progress.permille / 10:g} %" if 0 <= job.progress.permille <= _PERMILLE_DONE else ""
    return " ".join(part for part in (share, job.progress.message) if part)


def pairs(labels: Sequence[tuple[str, str]]) -> str:
    """Returns labels as KEY=VALUE."""
    return ", ".join(f"{key}={value}" for key, value in labels)


def _attempts(job: JobView) -> str:
    """Returns the numbers of attempts, failures and losses."""
    if not job.attempts:
        return ""
    losses = f", {job.losses} lost" if job.losses else ""
    return f"{job.attempts} ({job.failures} of {job.template.max_attempts} failed{losses})"


def _note(job: JobView) -> str:
    """Returns the progress, the failure reason or the run time of a job."""
    if job.state in TERMINAL:
        took = as_span(job.finished_ms - job.started_ms) if job.started_ms else ""
        return job.failure_reason or (f"in {took}" if took else "")
    return progress_words(job) or ("cancel requested" if job.cancel_requested else "")
