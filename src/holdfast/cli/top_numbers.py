"""Samples of a server for `holdfast top`, and the changes between them.

Pure: nothing here uses a server or a clock. Rates are differences of counts, so a rate is unknown while the server
evicts more jobs than it finishes.
"""

import itertools
import re
from collections import deque
from collections.abc import Sequence

import msgspec

from holdfast.core.lifecycle import TERMINAL, State
from holdfast.ports import JobView, QueueView, Stats, WorkerView

#: The parts that vary between reasons of the same kind.
_VARYING = re.compile(
    r"'[^']*'|\"[^\"]*\"|0x[0-9a-f]+|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\d+(?:\.\d+)?", re.IGNORECASE
)
_RATE_MS, _MINUTE_MS, _KEPT_MS = 5_000, 60_000, 300_000
_REASON_CHARS = 300


class TopSample(msgspec.Struct, frozen=True):
    """A sample of a server; `failed` has its newest failed jobs."""

    stats: Stats
    queues: list[QueueView]
    workers: list[WorkerView]
    failed: list[JobView]


class FailureGroup(msgspec.Struct, frozen=True):
    """Failed jobs of one type with reasons of the same kind."""

    type: str
    jobs: int
    newest: JobView


class Trend:
    """The samples of the last minutes."""

    def __init__(self) -> None:
        self._stats: deque[Stats] = deque()

    def add(self, stats: Stats) -> None:
        """Adds a sample; drops older ones if the server has restarted or its clock went back."""
        if self._stats and (stats.epoch != self._stats[-1].epoch or stats.now_ms < self._stats[-1].now_ms):
            self._stats.clear()
        self._stats.append(stats)
        while stats.now_ms - self._stats[0].now_ms > _KEPT_MS:
            self._stats.popleft()

    def rate(self, state: State | None) -> float | None:
        """Returns the new jobs in this state, or in any state, per second; None if that is unknown."""
        before, now = self._before(_RATE_MS), self._stats[-1]
        elapsed_ms = now.now_ms - before.now_ms
        grown = _count(now, state) - _count(before, state)
        return None if elapsed_ms <= 0 or grown < 0 else grown * 1_000 / elapsed_ms

    def grown(self, state: State) -> int:
        """Returns the growth since a minute ago, or since the oldest sample."""
        return max(0, _count(self._stats[-1], state) - _count(self._before(_MINUTE_MS), state))

    @property
    def is_minute(self) -> bool:
        """Whether the samples cover a minute."""
        return self._stats[-1].now_ms - self.since_ms >= _MINUTE_MS

    @property
    def since_ms(self) -> int:
        """The time of the oldest sample."""
        return self._stats[0].now_ms

    def ended(self) -> tuple[int, int]:
        """Returns the number of jobs that ended since a sample of up to a minute ago, and the age of that sample in ms.

        Jobs that were evicted meanwhile reduce the number.
        """
        before, now = self._before(_MINUTE_MS), self._stats[-1]
        return sum(self.grown(state) for state in TERMINAL), now.now_ms - before.now_ms

    def steps(self, state: State) -> list[int]:
        """Returns the growth between each two consecutive samples."""
        counts = [_count(stats, state) for stats in self._stats]
        return [max(0, now - before) for before, now in itertools.pairwise(counts)]

    def _before(self, within_ms: int) -> Stats:
        now_ms = self._stats[-1].now_ms
        return next(stats for stats in self._stats if now_ms - stats.now_ms <= within_ms)


def _count(stats: Stats, state: State | None) -> int:
    return sum(stats.states.values()) if state is None else stats.states.get(state.name, 0)


def grouped(failed: Sequence[JobView]) -> list[FailureGroup]:
    """Returns the failed jobs grouped by type and reason, most frequent first."""
    groups: dict[tuple[str, str], list[JobView]] = {}
    for job in failed:
        key = (job.template.type, _VARYING.sub("#", job.failure_reason[:_REASON_CHARS]))
        groups.setdefault(key, []).append(job)
    found = [
        FailureGroup(key[0], len(jobs), max(jobs, key=lambda job: job.finished_ms)) for key, jobs in groups.items()
    ]
    return sorted(found, key=lambda group: (-group.jobs, -group.newest.finished_ms))
