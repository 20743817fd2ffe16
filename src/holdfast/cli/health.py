"""The rules by which `holdfast top` judges the health of a system.

Pure functions: they use neither a server nor a clock. The dashboard's `health.js` applies the same rules to its series.
"""

from collections.abc import Iterator, Sequence

import msgspec

from holdfast.cli.text import as_span
from holdfast.cli.top_numbers import TopSample, Trend
from holdfast.core.lifecycle import DONE, FAILED
from holdfast.core.model import QueueMode
from holdfast.core.unknown_types import unknown_types, unknown_types_text
from holdfast.ports import QueueView, WorkerView

_OLD_MS, _VERY_OLD_MS, _SILENT_MS = 60_000, 600_000, 20_000
#: Jobs are stalled if all slots are busy, and for at least this long the oldest job has waited and no job has ended.
_STALLED_MS = 5_000
_FAILURES_MIN, _SHARE_WARN, _SHARE_BAD = 3, 0.05, 0.5


class Finding(msgspec.Struct, frozen=True):
    """A fact that an operator should know; a note needs no action."""

    is_bad: bool
    text: str
    is_note: bool = False


def findings(look: TopSample, trend: Trend) -> list[Finding]:
    """Returns the findings, worst first."""
    found = [
        *(Finding(is_bad=True, text=text) for text in look.stats.warnings),
        *_without_worker(look),
        *_saturated(look, trend),
        *_old(look),
        *_closed(look.queues),
        *_failing(trend),
        *_silent(look.workers),
    ]
    return sorted(found, key=lambda finding: (not finding.is_bad, finding.is_note))


def verdict(look: TopSample, found: Sequence[Finding]) -> str:
    """Returns the overall state; at best "busy" if all slots are taken while jobs wait."""
    if any(finding.is_bad for finding in found):
        return "critical"
    if any(not finding.is_note for finding in found):
        return "warning"
    if found:
        return "busy"
    return "healthy" if look.stats.states.get("QUEUED") or look.stats.states.get("RUNNING") else "healthy, idle"


def _open_queues(look: TopSample) -> list[QueueView]:
    return [queue for queue in look.queues if queue.mode != QueueMode.PAUSED and queue.ready]


def _without_worker(look: TopSample) -> Iterator[Finding]:
    """Yields jobs that would never run: no worker is connected, or none that knows their types."""
    waiting = _open_queues(look)
    if waiting and not look.stats.workers:
        text = f"{_jobs(sum(queue.ready for queue in waiting))} could run, but no worker is connected"
        yield Finding(is_bad=True, text=text)
        return
    types = unknown_types(waiting, {name for worker in look.workers for name in worker.types})
    if types:
        yield Finding(is_bad=True, text=unknown_types_text(types))


def _saturated(look: TopSample, trend: Trend) -> Iterator[Finding]:
    """Yields a finding if all slots are busy while jobs wait: a note while jobs end, otherwise a warning.

    For example, no job ends if every slot runs a job that waits for the result of a queued job.
    """
    workers = [worker for worker in look.workers if worker.slots]
    waiting = _open_queues(look)
    if not waiting or not workers or any(worker.running < worker.slots for worker in workers):
        return
    oldest = max(waiting, key=lambda queue: queue.oldest_age_ms)
    ended, within_ms = trend.ended()
    slots = sum(worker.slots for worker in workers)
    text = (
        f"{'the only slot is' if slots == 1 else f'all {slots:,} slots are'} busy and"
        f" {_count(sum(queue.ready for queue in waiting), 'job waits', 'jobs wait')}, the oldest for"
        f" {as_span(oldest.oldest_age_ms)} in queue {oldest.name}{_ended_text(ended, within_ms)}"
    )
    is_stalled = not ended and _STALLED_MS <= within_ms <= oldest.oldest_age_ms
    yield Finding(is_bad=False, text=text, is_note=not is_stalled)


def _ended_text(ended: int, within_ms: int) -> str:
    """Returns the number of jobs that ended recently; empty after a single sample."""
    if not within_ms:
        return ""
    counted = _count(ended, "job has", "jobs have") if ended else "no job has"
    return f"; {counted} ended in the last {as_span(within_ms)}"


def _old(look: TopSample) -> Iterator[Finding]:
    if not look.stats.workers:
        return
    for queue in _open_queues(look):
        if queue.oldest_age_ms >= _OLD_MS:
            text = f"a job in queue {queue.name} has waited for {as_span(queue.oldest_age_ms)}"
            yield Finding(queue.oldest_age_ms >= _VERY_OLD_MS, text)


def _closed(queues: Sequence[QueueView]) -> Iterator[Finding]:
    for queue in queues:
        if queue.mode == QueueMode.OPEN:
            continue
        held = f"is paused and holds {_jobs(queue.ready + queue.delayed)}"
        does = held if queue.mode == QueueMode.PAUSED else "is draining and accepts no jobs"
        yield Finding(is_bad=False, text=f"queue {queue.name} {does}{': ' + queue.reason if queue.reason else ''}")


def _failing(trend: Trend) -> Iterator[Finding]:
    failed, done = trend.grown(FAILED), trend.grown(DONE)
    share = failed / max(1, failed + done)
    if failed >= _FAILURES_MIN and share >= _SHARE_WARN:
        text = f"{_jobs(failed)} failed in the last minute, {share:.0%} of those that ended"
        yield Finding(share >= _SHARE_BAD, text)


def _silent(workers: Sequence[WorkerView]) -> Iterator[Finding]:
    for worker in workers:
        if worker.heard_ms_ago >= _SILENT_MS:
            text = f"worker {worker.worker_id} has sent no heartbeat for {as_span(worker.heard_ms_ago)}"
            yield Finding(is_bad=False, text=text)


def _jobs(count: int) -> str:
    return _count(count, "job", "jobs")


def _count(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"
