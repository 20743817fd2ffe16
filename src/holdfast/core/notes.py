"""NoteTaker: what running attempts say of themselves.

A note is taken under a current, unexpired lease of its worker alone, as a report is; it is cut to size and kept for the
history of its job. It changes no state: not the job, not its lease, not the digest.
"""

from holdfast import limits
from holdfast.core.commands import Decision, TakeNotes
from holdfast.core.events import Noted
from holdfast.core.leases import LeaseManager
from holdfast.core.model import Lease, Note, Now
from holdfast.core.text import as_text

NOTES_TOO_LARGE = "NOTES_TOO_LARGE"


class NoteTaker:
    """The part of the ledger that listens to attempts."""

    __slots__ = ("_leases",)

    def __init__(self, leases: LeaseManager) -> None:
        self._leases = leases

    def take(self, command: TakeNotes, now: Now) -> Decision:
        """One event for all notes under a current lease; the others leave no trace."""
        taken: list[Note] = []
        reasons: list[str] = []
        room = limits.NOTES_CHARS_MAX
        for note in command.notes:
            lease, reason = self._leases.holding(command.worker, note.job_id, note.token, now)
            if lease is not None:
                kept = _cut(note, lease)
                room -= _chars(kept)
                reason = NOTES_TOO_LARGE if room < 0 else ""
                taken += [] if reason else [kept]
            reasons.append(reason)
        return Decision(Noted(now.log_ms, command.worker, taken) if taken else None, reasons)


def _cut(note: Note, lease: Lease) -> Note:
    """What is kept of a note: as much as fits, and only what can be written."""
    permille = -1 if note.permille == -1 else max(0, min(note.permille, limits.PERMILLE_MAX))
    message = as_text(note.message[: limits.NOTE_MESSAGE_CHARS_MAX])
    lines = tuple(as_text(line[: limits.NOTE_LINE_CHARS_MAX]) for line in note.lines[: limits.NOTE_LINES_MAX])
    return Note(lease.job.id, lease.token, permille, message, lines)


def _chars(note: Note) -> int:
    """What it weighs; even an empty line is an entry in the job's history."""
    return _NOTE_CHARS + len(note.message) + sum(len(line) + _LINE_CHARS for line in note.lines)


_NOTE_CHARS, _LINE_CHARS = 64, 16
