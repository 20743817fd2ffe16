"""ProgressBoard: the last reported progress of each running attempt.

Not part of the ledger's state; updated from applied events. A crash loses it, and the next note restores it. An entry
is removed with its lease, so there are never more entries than leases.
"""

import msgspec

from holdfast.core.events import AnyEvent, Noted, Reported, Revoked
from holdfast.core.model import Note


class Progress(msgspec.Struct, frozen=True):
    """The reported progress of an attempt; `permille` is -1 if it was never reported."""

    permille: int
    message: str
    at_ms: int

    @property
    def fraction(self) -> float:
        """The progress from 0 to 1, as job code reports it; 0 if it was never reported."""
        return max(0, self.permille) / 1_000


_UNSAID = Progress(-1, "", 0)


class ProgressBoard:
    """Progress by token."""

    __slots__ = ("_by_token",)

    def __init__(self) -> None:
        self._by_token: dict[int, Progress] = {}

    def __len__(self) -> int:
        return len(self._by_token)

    def get(self, token: int) -> Progress | None:
        """The last progress of the attempt under this lease, while the lease holds."""
        return self._by_token.get(token)

    def applied(self, event: AnyEvent) -> None:
        """Stores the progress in an event, and drops entries of leases that the event ended."""
        if type(event) is Noted:
            for note in event.notes:
                self._hear(note, event.at_ms)
        elif self._by_token and type(event) is Reported:
            for result in event.results:
                self._by_token.pop(result.token, None)
        elif self._by_token and type(event) is Revoked:
            for row in event.rows:
                self._by_token.pop(row.token, None)

    def _hear(self, note: Note, at_ms: int) -> None:
        """Stores the progress of a note, if it has any; a note without share or message keeps the previous one."""
        if note.permille < 0 and not note.message:
            return
        before = self._by_token.get(note.token, _UNSAID)
        permille = before.permille if note.permille < 0 else note.permille
        self._by_token[note.token] = Progress(permille, note.message or before.message, at_ms)
