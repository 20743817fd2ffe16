"""Notes (progress and log lines) of running attempts, collected between two heartbeats."""

from collections.abc import Iterator

from holdfast import limits
from holdfast.core.model import Note
from holdfast.worker.context import JobContext


class Notes:
    """Running attempts that have unsent notes, and the last notes of attempts that have ended."""

    def __init__(self) -> None:
        self._speakers: dict[JobContext, None] = {}
        self._last: list[Note] = []

    def add(self, context: JobContext) -> None:
        """Registers an attempt that has a note. Job code calls this on any thread, so it is one atomic step."""
        self._speakers[context] = None

    def end(self, context: JobContext) -> None:
        """Keeps the unsent note of an attempt that has ended; it is sent before the outcome."""
        if context.has_said:
            self._speakers.pop(context, None)
            note = context.take_note()
            if note is not None:
                self._last.append(note)

    def take_last(self) -> list[list[Note]]:
        """Returns the last notes of ended attempts, in parts that each fit into one message."""
        last, self._last = self._last, []
        return list(_cut(last))

    def take(self) -> list[list[Note]]:
        """Returns all notes since the last call, in parts that each fit into one message."""
        speakers, self._speakers = self._speakers, {}
        notes = [context.take_note() for context in list(speakers)]
        last, self._last = self._last, []
        return list(_cut([*last, *(note for note in notes if note is not None)]))


def _cut(notes: list[Note]) -> Iterator[list[Note]]:
    part: list[Note] = []
    size = 0
    for note in notes:
        weight = len(note.message) + sum(map(len, note.lines))
        size += weight
        if part and (size > limits.NOTES_CHARS_MAX or len(part) >= limits.BATCH_JOBS_MAX):
            yield part
            part, size = [], weight
        part.append(note)
    if part:
        yield part
