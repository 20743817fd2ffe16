"""What `holdfast top` knows: looks at a server, and what changed between them.

Pure: nothing here asks a server or a clock. Rates are differences of counts, so a server that forgets old jobs while
it finishes new ones has no rate for them.
"""

import itertools
import re
from collections import deque
from collections.abc import Sequence

import msgspec

from holdfast.core.lifecycle import TERMINAL, State
from holdfast.ports import JobView, QueueView, Stats, WorkerView

#: What differs between reasons that mean the same.
_VARYING = re.compile(
    r"'[^']*'|\"[^\"]*\"|0x[0-9a-f]+|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\d+(?:\.\d+)?", re.IGNORECASE
)
_RATE_MS, _MINUTE_MS, _KEPT_MS = 5_000, 60_000, 300_000
_REASON_CHARS = 300


class Look(msgspec.Struct, frozen=True):
    """A server at one instant; `failed` are the newest of the jobs that failed."""

    stats: Stats
    queues: list[QueueView]
    workers: list[WorkerView]
    failed: list[JobView]


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
        """How many more there are than a minute ago, or than at the oldest look."""
        return max(0, _count(self._stats[-1], state) - _count(self._before(_MINUTE_MS), state))

    @property
    def is_minute(self) -> bool:
        """Whether the looks go back for a minute."""
        return self._stats[-1].now_ms - self.since_ms >= _MINUTE_MS

    @property
    def since_ms(self) -> int:
        """The time of the oldest look."""
        return self._stats[0].now_ms

    def ended(self) -> tuple[int, int]:
        """How many more jobs have ended than at a look up to a minute ago, and how many milliseconds ago that was.

        As for rates, jobs that are forgotten meanwhile are missing from it.
        """
        before, now = self._before(_MINUTE_MS), self._stats[-1]
        return sum(self.grown(state) for state in TERMINAL), now.now_ms - before.now_ms

    def steps(self, state: State) -> list[int]:
        """How many more there were at each look than at the one before."""
        counts = [_count(stats, state) for stats in self._stats]
        return [max(0, now - before) for before, now in itertools.pairwise(counts)]

    def _before(self, within_ms: int) -> Stats:
        now_ms = self._stats[-1].now_ms
        return next(stats for stats in self._stats if now_ms - stats.now_ms <= within_ms)


def _count(stats: Stats, state: State | None) -> int:
    return sum(stats.states.values()) if state is None else stats.states.get(state.name, 0)


def grouped(failed: Sequence[JobView]) -> list[Group]:
    """What fails and why, the most frequent first."""
    groups: dict[tuple[str, str], list[JobView]] = {}
    for job in failed:
        key = (job.template.type, _VARYING.sub("#", job.failure_reason[:_REASON_CHARS]))
        groups.setdefault(key, []).append(job)
    found = [Group(key[0], len(jobs), max(jobs, key=lambda job: job.finished_ms)) for key, jobs in groups.items()]
    return sorted(found, key=lambda group: (-group.jobs, -group.newest.finished_ms))
