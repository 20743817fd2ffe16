"""ProgressBoard: how far each running attempt last said it was.

Soft state beside the book, fed with the events that were applied: a crash forgets it, and the next note brings it back.
An entry goes with its lease, so there are never more entries than leases.
"""

import msgspec

from holdfast.core.events import AnyEvent, Noted, Reported, Revoked
from holdfast.core.model import Note


class Progress(msgspec.Struct, frozen=True):
    """How far an attempt says it is; `permille` is -1 where it never said."""

    permille: int
    message: str
    at_ms: int

    @property
    def fraction(self) -> float:
        """From 0 to 1, as job code says it; 0 where it never said."""
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
        """What the attempt under this lease last said, while the lease holds."""
        return self._by_token.get(token)

    def applied(self, event: AnyEvent) -> None:
        """Takes in what an event says of progress, and drops what has ended with it."""
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
        """A note of log lines alone says nothing about progress; one half of it leaves the other as it was."""
        if note.permille < 0 and not note.message:
            return
        before = self._by_token.get(note.token, _UNSAID)
        permille = before.permille if note.permille < 0 else note.permille
        self._by_token[note.token] = Progress(permille, note.message or before.message, at_ms)
