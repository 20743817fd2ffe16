"""The events: entries of the journal.

A command leads to at most one event. An event states the decision and not its reasons, so applying it needs no clock,
no setting and no soft state. Tags and field order are part of the on-disk format: new fields are added only at the end,
with a default, and a tag is never reused (see `journal/__init__.py`).
"""

import msgspec

from holdfast.core.decode_errors import unreadable
from holdfast.core.model import NewJob, Note, QueueMode, Result, ScheduleSpec, Template


class Event(msgspec.Struct, frozen=True, array_like=True):
    """Base of all events: the log time of the decision, which never decreases."""

    at_ms: int


class Started(Event, frozen=True, tag=1):
    """A coordinator started to serve under this epoch, in this process.

    The start renews every lease to its full length, except those that an earlier start has renewed and whose worker has
    sent no heartbeat since.
    """

    epoch: int
    process: str = ""


class Created(Event, frozen=True, tag=2):
    """Jobs were accepted, in this order."""

    templates: list[Template]
    jobs: list[NewJob]


class Granted(Event, frozen=True, tag=3):
    """Leases were granted to one worker; tokens count up from `first_token` in the order of the ids.

    `is_local` says that the worker ends together with the server process.
    """

    worker: str
    lease_ms: int
    first_token: int
    job_ids: list[str]
    is_local: bool = False


class Extended(Event, frozen=True, tag=4):
    """The first heartbeat of a worker after a start, or a heartbeat with another lease length.

    Earlier versions wrote this event for every heartbeat.
    """

    worker: str
    lease_ms: int
    tokens: list[int]


class Revocation(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The new state of one job whose lease was revoked; `is_spent` counts against its loss budget."""

    token: int
    state: int
    is_spent: bool


class Revoked(Event, frozen=True, tag=5):
    """Leases were revoked: `expired`, `disconnected`, `not-running` or `released`."""

    worker: str
    reason: str
    rows: list[Revocation]
    #: The jobs of these leases, in the same order, so that the event is readable without the state.
    job_ids: list[str] = []


class RefusedReport(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A report that changed nothing; it is kept to explain the refusal."""

    job_id: str
    token: int
    reason: str


class Reported(Event, frozen=True, tag=6):
    """A worker reported the outcomes of attempts; refused rows are kept as evidence and change no state."""

    worker: str
    results: list[Result]
    refused: list[RefusedReport]
    #: The jobs of these results, in the same order, so that the event is readable without the state.
    job_ids: list[str] = []


class CancelAccepted(Event, frozen=True, tag=7):
    """A cancel took effect (`state` CANCELED) or was recorded for a running job (`state` RUNNING)."""

    job_id: str
    state: int
    reason: str


class Evicted(Event, frozen=True, tag=8):
    """The oldest finished jobs were removed, whatever their state. Earlier versions wrote it; now it is `Retired`."""

    count: int


class QueueModeSet(Event, frozen=True, tag=9):
    """A queue was opened, paused or drained."""

    queue: str
    mode: QueueMode
    reason: str


class QueuedCanceled(Event, frozen=True, tag=10):
    """Queued jobs were canceled together."""

    job_ids: list[str]
    reason: str


class Noted(Event, frozen=True, tag=11):
    """Progress and log lines of running attempts of one worker; kept for their history, changes no state."""

    worker: str
    notes: list[Note]


class ScheduleSet(Event, frozen=True, tag=12):
    """A schedule was created or replaced; `next_ms` is its next tick, 0 for none."""

    spec: ScheduleSpec
    next_ms: int


class ScheduleDeleted(Event, frozen=True, tag=13):
    """A schedule was deleted; its jobs stay."""

    name: str


class SchedulePaused(Event, frozen=True, tag=14):
    """A schedule was paused, or resumed with this next tick."""

    name: str
    is_paused: bool
    next_ms: int


class Ticked(Event, frozen=True, tag=15):
    """One tick of one schedule, with the job that it created, if any, and the next tick.

    `outcome` is `fired`, `skipped`, `missed` or `triggered`; `missed` counts the ticks that were passed over before
    this one. `canceled` is the earlier job that was canceled for the new one, and `canceled_state` its state afterwards
    (0 if there is none).
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
    """Finished jobs were removed: the oldest that did not fail, and the oldest that failed."""

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

#: The msgpack marker of a list whose length is a 32-bit number.
_ARRAY_32 = b"\xdd"
#: The number of bytes that joining adds to the events.
JOIN_BYTES = 5

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[AnyEvent])
_one_decoder: msgspec.msgpack.Decoder[AnyEvent] = msgspec.msgpack.Decoder(AnyEvent)
_splitter = msgspec.msgpack.Decoder(list[msgspec.Raw])


def encode_one(event: AnyEvent) -> bytes:
    """Encodes one event, to be joined with others into the body of a frame."""
    return _encoder.encode(event)


def join(encoded: list[bytes]) -> bytes:
    """Joins encoded events into the body of one frame: a list of events."""
    return b"".join((_ARRAY_32, len(encoded).to_bytes(4, "big"), *encoded))


def decode(body: bytes) -> list[AnyEvent]:
    """Decodes the events of one frame; raises `msgspec.ValidationError` for bytes that no version wrote."""
    try:
        return _decoder.decode(body)
    except (UnicodeDecodeError, RecursionError) as error:
        raise unreadable(error) from error


def decode_with(body: bytes, text: bytes) -> list[tuple[int, AnyEvent]]:
    """Decodes the events of a frame whose bytes contain `text`, each with its index in the frame.

    Raises as `decode` does. A frame may hold the events of thousands of callers; the other events are skipped without
    building objects.
    """
    if text not in body:
        return []
    try:
        parts = [(at, bytes(raw)) for at, raw in enumerate(_splitter.decode(body))]
        return [(at, _one_decoder.decode(data)) for at, data in parts if text in data]
    except (UnicodeDecodeError, RecursionError) as error:
        raise unreadable(error) from error
