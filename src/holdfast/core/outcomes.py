"""The outcome of an attempt that ended or was lost: one rule for every backend.

It covers retry and loss budgets, cancels that were requested meanwhile, and outputs above the limit. The backend that
holds the job calls these functions, and stores the result in its own way.
"""

import hashlib
from typing import Protocol

from holdfast import limits
from holdfast.core.commands import ReportRow
from holdfast.core.events import Revocation
from holdfast.core.failure import bounded
from holdfast.core.lifecycle import CANCELED, DONE, FAILED, QUEUED, State
from holdfast.core.model import EXPONENTIAL, FIXED, BackoffRule, Result, Template
from holdfast.core.text import as_text

LOSSES_SPENT = "WORKER_LOST"
OUTPUT_TOO_LARGE = "OUTPUT_TOO_LARGE"
_DOUBLINGS_MAX = 30


def too_large(size_bytes: int, output_bytes_max: int = limits.OUTPUT_BYTES_MAX) -> str:
    """The summary of a job with too large an output; its reason is the bare code, as the frozen contract requires."""
    return (
        f"{OUTPUT_TOO_LARGE}: expected at most {output_bytes_max} bytes of output, got {size_bytes};"
        " store large data elsewhere and return where it is"
    )


def result_summary(state: int, *, reason: str, summary: str) -> str:
    """The summary that clients read: a failure without one shows its reason, a cancel always has one.

    Every backend stores what the worker reported and applies this rule when a result is read.
    """
    return summary or reason or ("canceled; no reason was given" if state == CANCELED else "")


def failure_text(reason: str, summary: str) -> str:
    """A failure in one line: its reason, and its summary if that adds something."""
    if not reason or summary.startswith(reason):
        return summary
    return f"{reason}: {summary}" if summary else reason


def end_text(state: int, attempts: int, reason: str, summary: str) -> str:
    """A job's end in a sentence, for `why`."""
    words = failure_text(reason, summary)
    tries = f"{attempts} attempt{'s' if attempts != 1 else ''}"
    return f"it ended {State(state).name} after {tries}" + (f": {words}" if words else "")


def delay_text(wait_ms: int, failures: int) -> str:
    """The time until a job is due in a sentence, for `why`."""
    cause = f"after {failures} failed attempt{'s' if failures != 1 else ''}" if failures else "as submitted"
    wait_s = f"{wait_ms / 1_000:.1f}"
    return f"it is due now ({cause})" if wait_s == "0.0" else f"it is not due for another {wait_s} s ({cause})"


class BudgetFields(Protocol):
    """The fields of a job that its budgets depend on."""

    @property
    def grants(self) -> int: ...
    @property
    def failures(self) -> int: ...
    @property
    def losses(self) -> int: ...


class OutcomeFields(BudgetFields, Protocol):
    """The fields of a job that its outcome depends on."""

    @property
    def id(self) -> str: ...
    @property
    def template(self) -> Template: ...
    @property
    def token(self) -> int: ...
    @property
    def cancel_requested(self) -> bool: ...
    @property
    def cancel_reason(self) -> str: ...


def result_of(
    job: OutcomeFields, token: int, row: ReportRow, now_ms: int, *, output_bytes_max: int = limits.OUTPUT_BYTES_MAX
) -> Result:
    """The result of a report under a current lease; `state` is QUEUED if the job is retried.

    If the attempt is not the end of the job by itself, the result carries the failure description, bounded, for the
    history.
    """
    if len(row.output) > output_bytes_max:
        summary = too_large(len(row.output), output_bytes_max)
        return Result(token, FAILED, b"", summary, OUTPUT_TOO_LARGE, row.runtime_ms)
    if row.state == DONE:
        return success_of(token, row)
    summary = _summary(row)
    why = as_text(row.failure_reason[: limits.REASON_CHARS_MAX]) if row.failure_reason else ""
    if row.state == CANCELED and job.cancel_requested:
        return Result(token, CANCELED, row.output, summary or job.cancel_reason, "", row.runtime_ms)
    failures, template = job.failures + 1, job.template
    if not row.is_retryable or failures >= template.max_attempts:
        return Result(token, FAILED, row.output, summary, why, row.runtime_ms)
    if job.cancel_requested:
        summary = job.cancel_reason or "canceled between attempts"
        return Result(token, CANCELED, bounded(row.output), summary, why, row.runtime_ms)
    asked_ms = max(0, min(row.retry_after_ms, limits.DELAY_MS_MAX))
    wait_ms = asked_ms or retry_delay_ms(template.backoff, job.id, failures)
    return Result(token, QUEUED, bounded(row.output), summary, why, row.runtime_ms, now_ms + wait_ms)


def retry_ceiling_ms(backoff: BackoffRule, failures: int) -> int:
    """The longest delay after this many failures, before jitter."""
    if backoff.kind == FIXED:
        wait_ms = backoff.base_ms
    elif backoff.kind == EXPONENTIAL:
        wait_ms = backoff.base_ms << min(failures - 1, _DOUBLINGS_MAX)
    else:
        wait_ms = backoff.base_ms * failures * failures
    return min(wait_ms, backoff.max_ms)


def retry_delay_ms(backoff: BackoffRule, job_id: str, failures: int) -> int:
    """The delay after this many failures: full jitter for the exponential kind, exact otherwise.

    The jitter is derived from the job, so that replay gives the same delay.
    """
    wait_ms = retry_ceiling_ms(backoff, failures)
    if backoff.kind != EXPONENTIAL or wait_ms == 0:
        return wait_ms
    draw = hashlib.sha256(f"{job_id}:{failures}".encode()).digest()[:8]
    return int.from_bytes(draw, "big") % (wait_ms + 1)


def is_success(row: ReportRow, *, output_bytes_max: int = limits.OUTPUT_BYTES_MAX) -> bool:
    """Whether a report under a current lease ends any job as DONE, whatever the other fields of the job."""
    return row.state == DONE and len(row.output) <= output_bytes_max


def success_of(token: int, row: ReportRow) -> Result:
    """The result of a report for which `is_success` holds."""
    return Result(token, DONE, row.output, _summary(row), "", row.runtime_ms)


def _summary(row: ReportRow) -> str:
    """The summary, cut, without characters that UTF-8 cannot encode (from a file name that is not UTF-8, say)."""
    return as_text(row.summary[: limits.SUMMARY_CHARS_MAX]) if row.summary else ""


def is_endless(job: BudgetFields) -> bool:
    """Whether the job has more than `UNSPENT_GRANTS_MAX` grants without a failure or loss; the next is a loss."""
    return job.grants - job.failures - job.losses > limits.UNSPENT_GRANTS_MAX


def revocation_of(job: OutcomeFields, *, is_spent: bool) -> Revocation:
    """The result of a lost lease: the job is queued again, or ends if its loss budget is spent."""
    is_spent |= is_endless(job)
    if job.cancel_requested:
        return Revocation(job.token, CANCELED, is_spent)
    if is_spent and job.losses >= job.template.max_losses:
        return Revocation(job.token, FAILED, is_spent)
    return Revocation(job.token, QUEUED, is_spent)
