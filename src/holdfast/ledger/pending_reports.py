"""Reports that found no room in the journal: the coordinator keeps them, whole, until there is some.

Invariants: the leases that a waiting report speaks for are kept: neither time nor the loss of the worker ends them. The
oldest report is recorded first. A worker that repeats a report takes the place of its earlier call, whose rows stay.
"""

from collections.abc import Callable

from holdfast.core.commands import Report

Done = Callable[[object], None]
_Key = tuple[str, tuple[tuple[str, int], ...]]
#: More than what a row takes beside its output and its texts.
_ROW_BYTES = 512


class WaitingReports:
    """Reports by what they are about, oldest first, up to so many bytes."""

    __slots__ = ("_bytes", "_bytes_max", "waiting")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        #: Those that wait; only this class changes it.
        self.waiting: dict[_Key, tuple[Report, Done]] = {}

    def add(self, report: Report, done: Done) -> Done | None:
        """Keeps the report; returns the call to refuse, if any: an earlier one, or this one if there is no room.

        The only report is kept whatever its size.
        """
        key = _key(report)
        if key in self.waiting:
            first, before = self.waiting[key]
            self.waiting[key] = first, done
            return before
        size = _size(report)
        if self.waiting and self._bytes + size > self._bytes_max:
            return done
        self._bytes += size
        self.waiting[key] = report, done
        return None

    def first(self) -> tuple[Report, Done]:
        """The oldest report, and the call that waits for it."""
        return next(iter(self.waiting.values()))

    def remove(self, report: Report) -> None:
        """The report was decided."""
        del self.waiting[_key(report)]
        self._bytes -= _size(report)

    def clear(self) -> list[Done]:
        """Gives all up; returns the calls that wait."""
        waiting = [done for _, done in self.waiting.values()]
        self.waiting.clear()
        self._bytes = 0
        return waiting


def _key(report: Report) -> _Key:
    return report.worker, tuple((row.job_id, row.token) for row in report.rows)


def _size(report: Report) -> int:
    return sum(len(row.output) + len(row.summary) + len(row.failure_reason) + _ROW_BYTES for row in report.rows)
