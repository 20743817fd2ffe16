"""Messages between a worker and a child: four bytes of length (big endian), then one message as msgpack.

Job code has access to the child's socket. So the worker accepts only messages that it could send on to the backend.
"""

import msgspec

from holdfast import limits
from holdfast.core.commands import ReportRow
from holdfast.core.lifecycle import TERMINAL
from holdfast.core.model import Note
from holdfast.core.trace_context import TraceContext
from holdfast.ports import Assignment
from holdfast.worker.outcomes import RUNTIME_MS_MAX

LENGTH_BYTES = 4
#: Longer than any valid message; a frame that claims to be longer is invalid.
FRAME_BYTES_MAX = 2 * limits.MESSAGE_BYTES_MAX


class Run(msgspec.Struct, frozen=True, tag="run"):
    """To the child: run this attempt."""

    assignment: Assignment
    #: The context of the attempt's span, if there is one.
    trace: TraceContext | None = None


class Interrupt(msgspec.Struct, frozen=True, tag="interrupt"):
    """To the child: end the running attempt, because of a timeout or a cancel."""

    is_timeout: bool


class Leave(msgspec.Struct, frozen=True, tag="leave"):
    """To the child: exit cleanly."""


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """From the child: the app is loaded, and the child can run attempts."""


class NoteMessage(msgspec.Struct, frozen=True, tag="said"):
    """From the child: a note of the running attempt."""

    note: Note


class OutcomeMessage(msgspec.Struct, frozen=True, tag="over"):
    """From the child: the outcome of the attempt, and the child's resident memory."""

    row: ReportRow
    resident_bytes: int


ToChild = Run | Interrupt | Leave
FromChild = Ready | NoteMessage | OutcomeMessage

TO_CHILD = msgspec.msgpack.Decoder(ToChild)
_FROM_CHILD = msgspec.msgpack.Decoder(FromChild)
_ENCODER = msgspec.msgpack.Encoder()
_PERMILLE_MAX = 1_000


def said_by_child(data: bytes) -> FromChild | None:
    """Decodes a message from a child; None if it is invalid."""
    try:
        message = _FROM_CHILD.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    is_nonsense = (isinstance(message, OutcomeMessage) and not _is_outcome(message.row)) or (
        isinstance(message, NoteMessage) and not _is_note(message.note)
    )
    return None if is_nonsense else message


def _is_outcome(row: ReportRow) -> bool:
    return (
        row.state in TERMINAL
        and len(row.output) <= limits.OUTPUT_BYTES_MAX
        and len(row.summary) <= limits.SUMMARY_CHARS_MAX
        and len(row.failure_reason) <= limits.REASON_CHARS_MAX
        and 0 <= row.runtime_ms <= RUNTIME_MS_MAX
        and 0 <= row.retry_after_ms <= limits.DELAY_MS_MAX
    )


def _is_note(note: Note) -> bool:
    return (
        note.permille <= _PERMILLE_MAX
        and len(note.message) <= limits.NOTE_MESSAGE_CHARS_MAX
        and len(note.lines) <= limits.NOTE_LINES_MAX
        and all(len(line) <= limits.NOTE_LINE_CHARS_MAX for line in note.lines)
    )


def framed(message: ToChild | FromChild) -> bytes:
    """Encodes a message with its length before it."""
    body = _ENCODER.encode(message)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body
