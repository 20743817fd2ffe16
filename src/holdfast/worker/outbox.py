"""Outcomes, kept until the backend confirms that they are durable.

Invariants: an outcome is kept from the end of its attempt until it is acknowledged or its lease is lost. Each session
sends it once.
"""

from collections.abc import Iterator

from holdfast.core.commands import ReportRow
from holdfast.worker.outcomes import cut


class Outbox:
    """Outcomes to send, and outcomes that were sent and not acknowledged yet."""

    def __init__(self) -> None:
        #: All kept outcomes, by token.
        self.rows: dict[int, ReportRow] = {}
        self._unsent: list[ReportRow] = []
        self._sent: dict[int, list[ReportRow]] = {}
        self._next_report = 1

    def add(self, row: ReportRow) -> None:
        """Adds the outcome of an attempt that has ended."""
        self.rows[row.token] = row
        self._unsent.append(row)

    def begin_session(self) -> None:
        """Marks all outcomes as unsent: it is unknown which ones the last session delivered."""
        self._sent.clear()
        self._unsent = list(self.rows.values())

    def take(self) -> Iterator[tuple[int, list[ReportRow]]]:
        """Yields the unsent outcomes in numbered reports, and marks them as sent."""
        rows, self._unsent = self._unsent, []
        for part in cut(rows):
            report_id = self._next_report
            self._next_report += 1
            self._sent[report_id] = part
            yield report_id, part

    def acknowledge(self, reported: int) -> None:
        """Drops the outcomes of all reports up to this number, which are durable."""
        for report_id in [report_id for report_id in self._sent if report_id <= reported]:
            for row in self._sent.pop(report_id):
                self.rows.pop(row.token, None)

    def forget(self, token: int) -> None:
        """Drops the outcome of a lease that was lost or handed back."""
        row = self.rows.pop(token, None)
        if row is not None:
            self._unsent = [other for other in self._unsent if other is not row]
