"""What `holdfast top` knows: looks at a server, what changed between them, and whether that is healthy.

Pure: nothing here asks a server or a clock. Rates are differences of counts, so a server that forgets old jobs while
it finishes new ones has no rate for them.
"""

import itertools
import re
from collections import deque
from collections.abc import Iterator, Sequence

import msgspec

from holdfast.backends.ports import JobView, QueueView, Stats, WorkerView
from holdfast.cli.text import as_span
from holdfast.core.lifecycle import DONE, FAILED, State
from holdfast.core.model import QueueMode

#: What differs between reasons that mean the same.
_VARYING = re.compile(
    r"'[^']*'|\"[^\"]*\"|0x[0-9a-f]+|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\d+(?:\.\d+)?", re.IGNORECASE
)
_RATE_MS, _MINUTE_MS, _KEPT_MS = 5_000, 60_000, 300_000
_OLD_MS, _VERY_OLD_MS, _SILENT_MS = 60_000, 600_000, 20_000
_FAILURES_MIN, _SHARE_WARN, _SHARE_BAD = 3, 0.05, 0.5
_REASON_CHARS = 300


class Look(msgspec.Struct, frozen=True):
    """A server at one instant; `failed` are the newest of the jobs that failed."""

    stats: Stats
    queues: list[QueueView]
    workers: list[WorkerView]
    failed: list[JobView]


class Finding(msgspec.Struct, frozen=True):
    """Something that a person should know."""

    is_bad: bool
    text: str


class Group(msgspec.Struct, frozen=True):
    """Failed jobs of one type whose reasons have the same words."""

    type: str
    jobs: int
    newest: JobView


class Trend:
    """The looks of the last minutes."""

    def __init__(self) -> None:
        self._stats: deque[Stats] = deque()

    def add(self, stats: Stats) -> None:
        """One more; what counts from another start is forgotten."""
        if self._stats and (stats.epoch != self._stats[-1].epoch or stats.now_ms < self._stats[-1].now_ms):
            self._stats.clear()
        self._stats.append(stats)
        while stats.now_ms - self._stats[0].now_ms > _KEPT_MS:
            self._stats.popleft()

    def rate(self, state: State | None) -> float | None:
        """New jobs in this state, or new jobs at all, a second; nothing if that cannot be known."""
        before, now = self._before(_RATE_MS), self._stats[-1]
        elapsed_ms = now.now_ms - before.now_ms
        grown = _count(now, state) - _count(before, state)
        return None if elapsed_ms <= 0 or grown < 0 else grown * 1_000 / elapsed_ms

    def grown(self, state: State) -> int:
        """How many more there are than a minute ago."""
        return max(0, _count(self._stats[-1], state) - _count(self._before(_MINUTE_MS), state))

    def steps(self, state: State) -> list[int]:
        """How many more there were at each look than at the one before."""
        counts = [_count(stats, state) for stats in self._stats]
        return [max(0, now - before) for before, now in itertools.pairwise(counts)]

    def _before(self, within_ms: int) -> Stats:
        now_ms = self._stats[-1].now_ms
        return next(stats for stats in self._stats if now_ms - stats.now_ms <= within_ms)


def _count(stats: Stats, state: State | None) -> int:
    return sum(stats.states.values()) if state is None else stats.states.get(state.name, 0)


def findings(look: Look, trend: Trend) -> list[Finding]:
    """What is wrong, the worst first."""
    found = [*_waiting(look), *_closed(look.queues), *_failing(trend), *_silent(look.workers)]
    return sorted(found, key=lambda finding: not finding.is_bad)


def verdict(look: Look, found: Sequence[Finding]) -> str:
    """One word for all of it."""
    if any(finding.is_bad for finding in found):
        return "needs attention"
    if found:
        return "have a look"
    return "healthy" if look.stats.states.get("QUEUED") or look.stats.states.get("RUNNING") else "healthy, idle"


def _waiting(look: Look) -> Iterator[Finding]:
    open_queues = [queue for queue in look.queues if queue.mode != QueueMode.PAUSED and queue.ready]
    ready = sum(queue.ready for queue in open_queues)
    if ready and not look.stats.workers:
        yield Finding(is_bad=True, text=f"{_jobs(ready)} could run and no worker is connected")
        return
    is_full = 0 < look.stats.slots <= look.stats.leases
    for queue in open_queues:
        if queue.oldest_age_ms >= _OLD_MS:
            busy = "; every slot is busy" if is_full else ""
            text = f"in queue {queue.name} a job has waited for {as_span(queue.oldest_age_ms)}{busy}"
            yield Finding(queue.oldest_age_ms >= _VERY_OLD_MS, text)


def _closed(queues: Sequence[QueueView]) -> Iterator[Finding]:
    for queue in queues:
        if queue.mode == QueueMode.OPEN:
            continue
        held = f"is paused and holds {_jobs(queue.ready + queue.delayed)}"
        does = held if queue.mode == QueueMode.PAUSED else "drains and takes no jobs"
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
            text = f"worker {worker.worker_id} has been silent for {as_span(worker.heard_ms_ago)}"
            yield Finding(is_bad=False, text=text)


def _jobs(count: int) -> str:
    return f"{count:,} job{'' if count == 1 else 's'}"


def grouped(failed: Sequence[JobView]) -> list[Group]:
    """What fails and why, the most frequent first."""
    groups: dict[tuple[str, str], list[JobView]] = {}
    for job in failed:
        key = (job.template.type, _VARYING.sub("#", job.failure_reason[:_REASON_CHARS]))
        groups.setdefault(key, []).append(job)
    found = [Group(key[0], len(jobs), max(jobs, key=lambda job: job.finished_ms)) for key, jobs in groups.items()]
    return sorted(found, key=lambda group: (-group.jobs, -group.newest.finished_ms))
