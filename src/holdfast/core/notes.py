"""NoteManager: accepts progress and log lines from running attempts.

Like a report, a note is accepted only from the holder of a current, unexpired lease. It is cut to size and kept for the
history of its job. It changes no state: not the job, not its lease, not the digest.
"""

from holdfast import limits
from holdfast.core.commands import Decision, TakeNotes
from holdfast.core.events import Noted
from holdfast.core.leases import LeaseManager
from holdfast.core.model import Lease, Note, Now
from holdfast.core.text import as_text

NOTES_TOO_LARGE = "NOTES_TOO_LARGE"


class NoteManager:
    """The part of the ledger that accepts notes of attempts."""

    __slots__ = ("_leases",)

    def __init__(self, leases: LeaseManager) -> None:
        self._leases = leases

    def take(self, command: TakeNotes, now: Now) -> Decision:
        """One event for all notes under a current lease; refused notes leave no trace."""
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
    """Cuts a note to the allowed size and replaces characters that UTF-8 cannot encode."""
    permille = -1 if note.permille == -1 else max(0, min(note.permille, limits.PERMILLE_MAX))
    message = as_text(note.message[: limits.NOTE_MESSAGE_CHARS_MAX])
    lines = tuple(as_text(line[: limits.NOTE_LINE_CHARS_MAX]) for line in note.lines[: limits.NOTE_LINES_MAX])
    return Note(lease.job.id, lease.token, permille, message, lines)


def _chars(note: Note) -> int:
    """The size of a note, with a fixed cost for each line: even an empty line is an entry in the job's history."""
    return _NOTE_CHARS + len(note.message) + sum(len(line) + _LINE_CHARS for line in note.lines)


_NOTE_CHARS, _LINE_CHARS = 64, 16
