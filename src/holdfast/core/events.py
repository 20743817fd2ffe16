"""What happened: the entries of the journal.

One command leads to one event or to none. An event says what was decided, never how: applying it needs no
clock, no setting and no soft state. The tags and the order of fields are part of the on-disk format: fields
are only ever added at the end, with a default, and a tag is never reused (see `journal/__init__.py`).
"""

import msgspec

from holdfast.core.model import NewJob, Note, QueueMode, Result, ScheduleSpec, Template
from holdfast.core.unreadable import unreadable


class Event(msgspec.Struct, frozen=True, array_like=True):
    """Common to all: the log time at which it was decided, which never goes back."""

    at_ms: int


class Started(Event, frozen=True, tag=1):
    """A coordinator began to serve under this epoch, in this process.

    Every lease runs again at full length, unless it did so at an earlier start and its worker was not heard since.
    """

    epoch: int
    process: str = ""


class Created(Event, frozen=True, tag=2):
    """Jobs were accepted, in this order."""

    templates: list[Template]
    jobs: list[NewJob]


class Granted(Event, frozen=True, tag=3):
    """Leases were given to one worker; tokens count up from `first_token` in the order of the ids.

    `is_local` says that the worker dies with the process that serves.
    """

    worker: str
    lease_ms: int
    first_token: int
    job_ids: list[str]
    is_local: bool = False


class Extended(Event, frozen=True, tag=4):
    """A worker was heard whose leases depend on that: the first time after a start, or with another lease length.

    Earlier versions wrote one for every heartbeat.
    """

    worker: str
    lease_ms: int
    tokens: list[int]


class Revocation(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What became of one job whose lease was taken back; `is_spent` counts against its loss budget."""

    token: int
    state: int
    is_spent: bool


class Revoked(Event, frozen=True, tag=5):
    """Leases were taken back: `expired`, `disconnected`, `not-running` or `released`."""

    worker: str
    reason: str
    rows: list[Revocation]
    #: Whose leases they were, in the same order, so that the log explains itself.
    job_ids: list[str] = []


class RefusedReport(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A report that changed nothing, kept so that it can be explained."""

    job_id: str
    token: int
    reason: str


class Reported(Event, frozen=True, tag=6):
    """A worker reported how attempts ended; refused rows are evidence and change no state."""

    worker: str
    results: list[Result]
    refused: list[RefusedReport]
    #: Whose results they are, in the same order, so that the log explains itself.
    job_ids: list[str] = []


class CancelAccepted(Event, frozen=True, tag=7):
    """A cancel took effect (`state` CANCELED) or was noted for a running job (`state` RUNNING)."""

    job_id: str
    state: int
    reason: str


class Evicted(Event, frozen=True, tag=8):
    """The oldest finished jobs were forgotten, whatever their state. Earlier versions wrote it; now it is `Retired`."""

    count: int


class QueueModeSet(Event, frozen=True, tag=9):
    """A queue was opened, paused or drained."""

    queue: str
    mode: QueueMode
    reason: str


class QueuedCanceled(Event, frozen=True, tag=10):
    """Jobs that waited were canceled together."""

    job_ids: list[str]
    reason: str


class Noted(Event, frozen=True, tag=11):
    """What running attempts of one worker said of themselves; kept for their history, changes no state."""

    worker: str
    notes: list[Note]


class ScheduleSet(Event, frozen=True, tag=12):
    """A schedule was made, or replaced; its next tick, 0 for none."""

    spec: ScheduleSpec
    next_ms: int


class ScheduleDeleted(Event, frozen=True, tag=13):
    """A schedule is no more; the jobs that it made stay."""

    name: str


class SchedulePaused(Event, frozen=True, tag=14):
    """A schedule was paused, or goes on with this tick."""

    name: str
    is_paused: bool
    next_ms: int


class Ticked(Event, frozen=True, tag=15):
    """One tick of one schedule: the job that it makes, or why it makes none, and the tick after it.

    `outcome` is `fired`, `skipped`, `missed` or `triggered`; `missed` counts the ticks that were passed over before
    this one. `canceled` is the job that makes room, and the state that it is in afterwards (0: there is none).
    """

    name: str
    tick_ms: int
    outcome: str
    next_ms: int
    missed: int = 0
    template: Template | None = None
    job: NewJob | None = None
    canceled: str = ""
    canceled_state: int = 0


class Retired(Event, frozen=True, tag=16):
    """Finished jobs were forgotten: the oldest that did not fail, and the oldest that failed."""

    others: int
    failed: int


AnyEvent = (
    Started
    | Created
    | Granted
    | Extended
    | Revoked
    | Reported
    | CancelAccepted
    | Evicted
    | QueueModeSet
    | QueuedCanceled
    | Noted
    | ScheduleSet
    | ScheduleDeleted
    | SchedulePaused
    | Ticked
    | Retired
)

#: The marker of a list whose length is a 32-bit number.
_ARRAY_32 = b"\xdd"
#: What joining adds to the events.
JOIN_BYTES = 5

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[AnyEvent])
_one_decoder: msgspec.msgpack.Decoder[AnyEvent] = msgspec.msgpack.Decoder(AnyEvent)
_splitter = msgspec.msgpack.Decoder(list[msgspec.Raw])


def encode_one(event: AnyEvent) -> bytes:
    """One event, to be joined with others into the body of a frame."""
    return _encoder.encode(event)


def join(encoded: list[bytes]) -> bytes:
    """The body of one frame: a list of events."""
    return b"".join((_ARRAY_32, len(encoded).to_bytes(4, "big"), *encoded))


def decode(body: bytes) -> list[AnyEvent]:
    """The events of one frame; raises `msgspec.ValidationError` for what no version ever wrote."""
    try:
        return _decoder.decode(body)
    except (UnicodeDecodeError, RecursionError) as error:
        raise unreadable(error) from error


def decode_with(body: bytes, text: bytes) -> list[tuple[int, AnyEvent]]:
    """Those events of one frame whose bytes hold this text, each with its place in the frame; raises as `decode` does.

    A frame may hold the events of thousands of callers: the others are passed over without making objects of them.
    """
    if text not in body:
        return []
    try:
        parts = [(at, bytes(raw)) for at, raw in enumerate(_splitter.decode(body))]
        return [(at, _one_decoder.decode(data)) for at, data in parts if text in data]
    except (UnicodeDecodeError, RecursionError) as error:
        raise unreadable(error) from error
