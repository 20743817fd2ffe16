"""Outcomes, kept until the backend says that they are durable.

Invariants: an outcome is here from the end of its attempt until it is acknowledged or its lease is lost; in each
session it is sent once.
"""

from collections.abc import Iterator

from holdfast.core.commands import ReportRow
from holdfast.worker.outcomes import cut


class Outbox:
    """What is to be sent, and what was sent and may be lost."""

    def __init__(self) -> None:
        #: All that is kept, by token.
        self.rows: dict[int, ReportRow] = {}
        self._unsent: list[ReportRow] = []
        self._sent: dict[int, list[ReportRow]] = {}
        self._next_report = 1

    def add(self, row: ReportRow) -> None:
        """An attempt has ended."""
        self.rows[row.token] = row
        self._unsent.append(row)

    def begin_session(self) -> None:
        """Whatever is kept goes out again: nobody knows what arrived."""
        self._sent.clear()
        self._unsent = list(self.rows.values())

    def take(self) -> Iterator[tuple[int, list[ReportRow]]]:
        """What was not sent yet, in numbered reports; sent as soon as it is taken."""
        rows, self._unsent = self._unsent, []
        for part in cut(rows):
            report_id = self._next_report
            self._next_report += 1
            self._sent[report_id] = part
            yield report_id, part

    def acknowledge(self, reported: int) -> None:
        """All reports up to this number are durable."""
        for report_id in [report_id for report_id in self._sent if report_id <= reported]:
            for row in self._sent.pop(report_id):
                self.rows.pop(row.token, None)

    def forget(self, token: int) -> None:
        """The lease is no longer ours, and its outcome is nobody's business."""
        row = self.rows.pop(token, None)
        if row is not None:
            self._unsent = [other for other in self._unsent if other is not row]
