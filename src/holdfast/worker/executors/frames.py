"""What a worker and a child say to each other: four bytes of length (big endian), then one message as msgpack."""

import msgspec

from holdfast import limits
from holdfast.backends.ports import Assignment
from holdfast.core.commands import ReportRow
from holdfast.core.model import Note
from holdfast.core.trace_context import TraceContext

LENGTH_BYTES = 4
#: Longer than any message: what claims to be, is none.
FRAME_BYTES_MAX = 2 * limits.MESSAGE_BYTES_MAX


class Run(msgspec.Struct, frozen=True, tag="run"):
    """To the child: run this."""

    assignment: Assignment
    #: The span around it, where there is one.
    trace: TraceContext | None = None


class Interrupt(msgspec.Struct, frozen=True, tag="interrupt"):
    """To the child: what runs should end, and why."""

    is_timeout: bool


class Leave(msgspec.Struct, frozen=True, tag="leave"):
    """To the child: end in good order."""


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """From the child: the app is loaded, jobs can come."""


class Said(msgspec.Struct, frozen=True, tag="said"):
    """From the child: what job code said."""

    note: Note


class Over(msgspec.Struct, frozen=True, tag="over"):
    """From the child: the attempt has ended; and how much memory the child holds."""

    row: ReportRow
    resident_bytes: int


ToChild = Run | Interrupt | Leave
FromChild = Ready | Said | Over

TO_CHILD = msgspec.msgpack.Decoder(ToChild)
FROM_CHILD = msgspec.msgpack.Decoder(FromChild)
_ENCODER = msgspec.msgpack.Encoder()


def framed(message: ToChild | FromChild) -> bytes:
    """The message with its length before it."""
    body = _ENCODER.encode(message)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body
