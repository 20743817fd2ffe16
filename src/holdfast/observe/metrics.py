"""Counters of the coordinator's events: an observer that only adds to integers.

A scrape converts the numbers to metric families (`exposition.py`); this module does not depend on Prometheus. The only
labels are the queue and the type of a job. There are at most `SERIES_MAX` pairs of them; jobs of further pairs are
counted under `other`, so that a client that invents names cannot exhaust the memory of the metrics database.
"""

from bisect import bisect_left
from collections.abc import Sequence

from holdfast.core.events import AnyEvent, Created, Granted, Reported, Revoked, Ticked
from holdfast.core.ledger import Ledger
from holdfast.core.lifecycle import CANCELED, DONE, FAILED, TERMINAL
from holdfast.core.model import JobRecord, Template
from holdfast.core.ticks import FIRED, MISSED, SKIPPED, TRIGGERED

SERIES_MAX = 100
OTHER = "other"
OUTCOMES = {int(DONE): "done", int(FAILED): "failed", int(CANCELED): "canceled"}

#: Upper bounds in milliseconds: from a job that starts at once to one that takes hours.
JOB_BOUNDS_MS = (1, 5, 10, 50, 100, 500, 1_000, 5_000, 10_000, 60_000, 600_000, 3_600_000)
#: Upper bounds in microseconds: from a fast disk to one that is too slow.
SYNC_BOUNDS_US = (50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 50_000, 100_000, 500_000, 1_000_000)


#: Jobs that an event changed, each with its previous state.
Moves = Sequence[tuple[JobRecord, int]]


class Distribution:
    """A histogram of integers: the number of values in each bucket, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[int, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0

    def add(self, value: int) -> None:
        """Counts one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Series:
    """All counters of one pair of queue and type."""

    __slots__ = ("finished", "queue", "run_ms", "submitted", "type", "wait_ms")

    def __init__(self, queue: str, job_type: str) -> None:
        self.queue, self.type = queue, job_type
        self.submitted = 0
        self.finished = dict.fromkeys(OUTCOMES, 0)
        self.wait_ms = Distribution(JOB_BOUNDS_MS)
        self.run_ms = Distribution(JOB_BOUNDS_MS)


class Meter:
    """An observer of the coordinator that counts events."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, str], Series] = {}
        self._other = Series(OTHER, OTHER)
        self.leases_expired = 0
        self.reports_fenced = 0
        self.ticks = dict.fromkeys((FIRED, SKIPPED, MISSED, TRIGGERED), 0)
        self.sync_us = Distribution(SYNC_BOUNDS_US)
        self.journal_bytes = 0

    def series(self) -> list[Series]:
        """Returns the series of every pair; `other` is last, if the maximum is reached."""
        is_full = len(self._series) == SERIES_MAX
        return [*self._series.values(), *([self._other] if is_full else [])]

    def applied(self, _position: int, event: AnyEvent, ledger: Ledger) -> None:
        """Counts the changes of the event."""
        moves = ledger.state.moves
        if isinstance(event, Created):
            self._created(moves)
        elif isinstance(event, Granted):
            self._granted(moves, event.at_ms)
        elif isinstance(event, Reported):
            self._reported(moves, event)
        else:
            self._ended(moves)
            if isinstance(event, Revoked) and event.reason == "expired":
                self.leases_expired += len(event.rows)
            elif isinstance(event, Ticked):
                self._ticked(event)

    def durable(self, position: int) -> None:
        """Does nothing: events are counted before they are durable, because a failed write ends the process."""

    def bug(self, command: object, error: Exception) -> None:
        """Does nothing: `BugLog` logs it."""

    def synced(self, duration_us: int, size: int) -> None:
        """Counts a frame that was made durable. May be called outside the loop, by one thread at a time."""
        self.sync_us.add(duration_us)
        self.journal_bytes += size

    # Equal templates are one object, and jobs of a batch are adjacent: their series is looked up once.

    def _created(self, moves: Moves) -> None:
        template, series = None, self._other
        for job, _ in moves:
            if job.template is not template:
                template = job.template
                series = self._of(template)
            series.submitted += 1

    def _ticked(self, event: Ticked) -> None:
        """Counts missed ticks one by one, in addition to the outcome of the tick that reports them."""
        self.ticks[MISSED] += event.missed
        if event.outcome != MISSED:
            self.ticks[event.outcome] += 1
        if event.job is not None and event.template is not None:
            self._of(event.template).submitted += 1

    def _granted(self, moves: Moves, at_ms: int) -> None:
        template, series = None, self._other
        for job, _ in moves:
            if job.template is not template:
                template = job.template
                series = self._of(template)
            since_ms = max(job.created_ms, job.not_before_ms, job.lost_ms)
            series.wait_ms.add(at_ms - since_ms if at_ms > since_ms else 0)

    def _reported(self, moves: Moves, event: Reported) -> None:
        self.reports_fenced += len(event.refused)
        template, series = None, self._other
        for (job, _), result in zip(moves, event.results, strict=True):
            if job.template is not template:
                template = job.template
                series = self._of(template)
            series.run_ms.add(result.runtime_ms)
            if result.state in series.finished:
                series.finished[result.state] += 1

    def _ended(self, moves: Moves) -> None:
        for job, before in moves:
            if job.state in TERMINAL and before != job.state:
                self._of(job.template).finished[job.state] += 1

    def _of(self, template: Template) -> Series:
        key = (template.queue, template.type)
        return self._series.get(key) or self._added(key)

    def _added(self, key: tuple[str, str]) -> Series:
        if len(self._series) >= SERIES_MAX:
            return self._other
        series = self._series[key] = Series(*key)
        return series
