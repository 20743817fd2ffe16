"""What becomes of an attempt that ended or was lost: the one rule of every backend that decides for itself.

Retry and loss budgets, cancels that were asked for meanwhile, outputs over the limit: whoever holds the job decides
with these functions, and only writes the answer down in its own way.
"""

from typing import Protocol

from holdfast import limits
from holdfast.core import retries
from holdfast.core.commands import ReportRow
from holdfast.core.events import Revocation
from holdfast.core.failure import bounded
from holdfast.core.lifecycle import CANCELED, DONE, FAILED, QUEUED, State
from holdfast.core.model import Result, Template
from holdfast.core.text import as_text

LOSSES_SPENT = "WORKER_LOST"
OUTPUT_TOO_LARGE = "OUTPUT_TOO_LARGE"


def too_large(size_bytes: int, output_bytes_max: int = limits.OUTPUT_BYTES_MAX) -> str:
    """The summary of a job that returned too much; its reason is the bare code, as the frozen contract has it."""
    return (
        f"{OUTPUT_TOO_LARGE}: expected at most {output_bytes_max} bytes of output, got {size_bytes};"
        " store large data elsewhere and return where it is"
    )


def result_summary(state: int, *, reason: str, summary: str) -> str:
    """The summary of a result as clients read it: a failure without one shows its reason, a cancel is always explained.

    Every backend stores what the worker reported and applies this rule when a result is read.
    """
    return summary or reason or ("canceled; no reason was given" if state == CANCELED else "")


def failure_text(reason: str, summary: str) -> str:
    """A failure in one line: its reason, and its summary where that says more."""
    if not reason or summary.startswith(reason):
        return summary
    return f"{reason}: {summary}" if summary else reason


def end_text(state: int, attempts: int, reason: str, summary: str) -> str:
    """How a job ended, as `why` says it."""
    words = failure_text(reason, summary)
    tries = f"{attempts} attempt{'s' if attempts != 1 else ''}"
    return f"it ended {State(state).name} after {tries}" + (f": {words}" if words else "")


def delay_text(wait_ms: int, failures: int) -> str:
    """When a job that is not due yet is due, as `why` says it."""
    cause = f"after {failures} failed attempt{'s' if failures != 1 else ''}" if failures else "as submitted"
    wait_s = f"{wait_ms / 1_000:.1f}"
    return f"it is due now ({cause})" if wait_s == "0.0" else f"it is not due for another {wait_s} s ({cause})"


class Counted(Protocol):
    """What of a job its budgets are counted by."""

    @property
    def grants(self) -> int: ...
    @property
    def failures(self) -> int: ...
    @property
    def losses(self) -> int: ...


class Tried(Counted, Protocol):
    """What of a job its outcome depends on."""

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
    job: Tried, token: int, row: ReportRow, now_ms: int, *, output_bytes_max: int = limits.OUTPUT_BYTES_MAX
) -> Result:
    """What a report under a current lease leads to; `state` is QUEUED where the job is tried again.

    A result of an attempt that is not the job's own end carries its failure description, bounded, for the history.
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
    wait_ms = asked_ms or retries.delay_ms(template.backoff, job.id, failures)
    return Result(token, QUEUED, bounded(row.output), summary, why, row.runtime_ms, now_ms + wait_ms)


def is_success(row: ReportRow, *, output_bytes_max: int = limits.OUTPUT_BYTES_MAX) -> bool:
    """Whether a report under a current lease ends any job well: nothing else of the job matters."""
    return row.state == DONE and len(row.output) <= output_bytes_max


def success_of(token: int, row: ReportRow) -> Result:
    """What such a report leads to."""
    return Result(token, DONE, row.output, _summary(row), "", row.runtime_ms)


def _summary(row: ReportRow) -> str:
    """A handler's words may hold what no encoder takes (a file name that is not UTF-8, say)."""
    return as_text(row.summary[: limits.SUMMARY_CHARS_MAX]) if row.summary else ""


def is_endless(job: Counted) -> bool:
    """Whether a job went round so often without spending anything that the next time counts as a loss."""
    return job.grants - job.failures - job.losses > limits.UNSPENT_GRANTS_MAX


def revocation_of(job: Tried, *, is_spent: bool) -> Revocation:
    """What a lost lease leads to: another worker, or the end of a job that costs too many."""
    is_spent |= is_endless(job)
    if job.cancel_requested:
        return Revocation(job.token, CANCELED, is_spent)
    if is_spent and job.losses >= job.template.max_losses:
        return Revocation(job.token, FAILED, is_spent)
    return Revocation(job.token, QUEUED, is_spent)
