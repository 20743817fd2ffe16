"""The journal as the coordinator sees it, with a witness of written and durable frames."""

from typing import Protocol

from holdfast.journal.file import FileJournal


class Witness(Protocol):
    """Receives every frame, before and after it is written."""

    def writing(self, body: bytes, count: int, digest: int) -> None:
        """A frame is about to be written; a crash from here on may keep it or lose it."""
        ...

    def wrote(self, body: bytes, count: int, digest: int, end_position: int) -> None:
        """The journal has reported the frame as durable, with this end position."""
        ...


class WitnessedJournal:
    """The coordinator's `Storage`."""

    __slots__ = ("_journal", "_witness")

    def __init__(self, journal: FileJournal, witness: Witness) -> None:
        self._journal = journal
        self._witness = witness

    @property
    def epoch(self) -> int:
        """The number of this opening."""
        return self._journal.epoch

    @property
    def end_position(self) -> int:
        """The last durable position."""
        return self._journal.end_position

    def reserve(self, size: int, *, spare: int = 0) -> bool:
        """Same as the journal's."""
        return self._journal.reserve(size, spare=spare)

    def write(self, body: bytes, count: int, digest: int, now_ms: int | None = None) -> int:
        """Same as the journal's, and notifies the witness."""
        self._witness.writing(body, count, digest)
        end_position = self._journal.write(body, count, digest, now_ms)
        self._witness.wrote(body, count, digest, end_position)
        return end_position
