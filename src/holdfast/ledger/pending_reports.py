"""Reports that found no space in the journal; the coordinator keeps them until there is space.

Invariants: the leases of a waiting report are kept: neither time nor the loss of the worker ends them. The oldest
report is recorded first. If a worker repeats a report, its new call replaces the earlier one; the first rows are kept.
"""

from collections.abc import Callable

from holdfast.core.commands import Report

Done = Callable[[object], None]
_Key = tuple[str, tuple[tuple[str, int], ...]]
#: Upper estimate for the memory of a row without its output and texts.
_ROW_BYTES = 512


class WaitingReports:
    """Waiting reports by worker and leases, oldest first, up to `bytes_max`."""

    __slots__ = ("_bytes", "_bytes_max", "waiting")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        #: The waiting reports; changed by this class only.
        self.waiting: dict[_Key, tuple[Report, Done]] = {}

    def add(self, report: Report, done: Done) -> Done | None:
        """Keeps the report; returns the call to refuse, if any: an earlier one, or this one above `bytes_max`.

        A single report is kept regardless of its size.
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
        """Returns the oldest report, and the call that waits for it."""
        return next(iter(self.waiting.values()))

    def remove(self, report: Report) -> None:
        """Removes a report that was decided."""
        del self.waiting[_key(report)]
        self._bytes -= _size(report)

    def clear(self) -> list[Done]:
        """Removes all reports; returns the calls that wait."""
        waiting = [done for _, done in self.waiting.values()]
        self.waiting.clear()
        self._bytes = 0
        return waiting


def _key(report: Report) -> _Key:
    return report.worker, tuple((row.job_id, row.token) for row in report.rows)


def _size(report: Report) -> int:
    return sum(len(row.output) + len(row.summary) + len(row.failure_reason) + _ROW_BYTES for row in report.rows)
