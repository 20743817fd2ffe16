"""The past of a journal: what happened to a job, what the state was, and whether it all holds together.

Everything here reads a directory and changes nothing in it.
"""

from collections.abc import Callable, Iterable, Iterator

import msgspec

from holdfast.core import events
from holdfast.core.digest import DIGEST_VERSION
from holdfast.core.events import AnyEvent
from holdfast.core.history import Entry
from holdfast.core.history import about as entries_about
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.errors import NotFoundError
from holdfast.journal.disk import Disk
from holdfast.journal.errors import JournalError
from holdfast.journal.pins import pin
from holdfast.journal.port import Frame
from holdfast.journal.reader import JournalReader
from holdfast.ledger.recovery import apply_frame, restore

#: Whether an event, at its position, is past the moment that is meant.
Moment = Callable[[int, AnyEvent], bool]


class BrokenInvariantError(JournalError):
    """The journal's files are intact, but what they say cannot have happened."""


class Proof(msgspec.Struct, frozen=True):
    """What a verification went through without finding anything."""

    first_position: int
    end_position: int
    frames: int
    jobs: int
    digest: int
    epoch: int


def all_events(disk: Disk, after: int = 0) -> Iterator[tuple[int, AnyEvent]]:
    """Every event past `after` that the journal still holds, with its position."""
    with pin(disk, max(after, 1)):
        reader = JournalReader(disk)
        yield from events_of(reader.frames(max(after, reader.first_position - 1)), after)


def events_of(frames: Iterable[Frame], after: int = 0) -> Iterator[tuple[int, AnyEvent]]:
    """The events of these frames past `after`, with their positions."""
    for frame in frames:
        for position, event in enumerate(events.decode(frame.body), frame.first_position):
            if position > after:
                yield position, event


def about(frames: Iterable[Frame], job_id: str) -> Iterator[Entry]:
    """What these frames say of one job."""
    # An event names its jobs as they are: one without these bytes need not be decoded.
    name = job_id.encode(errors="replace")
    for frame in frames:
        for at, event in events.decode_with(frame.body, name):
            yield from entries_about(frame.first_position + at, event, job_id)


def history(disk: Disk, job_id: str) -> list[Entry]:
    """Everything that the journal still knows about one job, oldest first."""
    with pin(disk, 1):
        reader = JournalReader(disk)
        found = list(about(reader.frames(reader.first_position - 1), job_id))
    if not found:
        raise no_history(job_id, reader.first_position)
    return found


def no_history(job_id: str, first_position: int) -> NotFoundError:
    """The journal says nothing about this job, as far back as it reaches."""
    message = f"the journal says nothing about a job {job_id!r}; it reaches back to position {first_position}"
    return NotFoundError(message, reason="JOB_NOT_FOUND")


def state_at(disk: Disk, is_past: Moment) -> Ledger:
    """The state before the first event for which `is_past(position, event)` holds."""
    with pin(disk, 1):
        reader = JournalReader(disk)
        if reader.first_position > 1:
            ledger = _state_from_snapshot(disk, reader, is_past)
        else:
            ledger = _replayed(Ledger(LedgerConfig()), reader, None, is_past)
    ledger.book.rehash(DIGEST_VERSION)
    return ledger


def _state_from_snapshot(disk: Disk, reader: JournalReader, is_past: Moment) -> Ledger:
    """Where the beginning is gone: from the oldest good snapshot, if the time asked for is not before it."""
    restored = restore(disk, LedgerConfig(), oldest_first=True)
    ledger = restored.ledger
    if ledger.position + 1 < reader.first_position:
        raise NotFoundError(f"the journal begins with position {reader.first_position}, and no snapshot leads there")
    start = ledger.position
    state = _replayed(ledger, reader, restored.link, is_past)
    if state.position == start and is_past(start, events.Started(state.book.last_ms, 0)):
        raise NotFoundError(f"history reaches back to position {start} only; what came before was deleted")
    return state


def _replayed(ledger: Ledger, reader: JournalReader, link: int | None, is_past: Moment) -> Ledger:
    for frame in reader.frames(ledger.position, link=link):
        for position, event in enumerate(events.decode(frame.body), frame.first_position):
            if is_past(position, event):
                return ledger
            ledger.apply(event)
    return ledger


def verify(disk: Disk, progress: Callable[[int, int], None]) -> Proof:
    """Says what `verified` went through."""
    return verified(disk, progress)[0]


def verified(
    disk: Disk, progress: Callable[[int, int], None], digest_version: int = DIGEST_VERSION
) -> tuple[Proof, Ledger]:
    """Replays all that is there and checks every promise that a log can keep; raises at the first broken one.

    Frames: checksums, links, positions, epochs. Events: legal moves only, tokens that only grow, one lease a job,
    results under a lease that is there, time that never goes back. State: the digest that was written with each frame,
    and at the end every cross-reference. `progress(position, end)` is called after each frame. The digest in the proof
    is of the version that is asked for, whatever versions the files are of.
    """
    with pin(disk, 1):
        reader = JournalReader(disk)
        restored = restore(disk, LedgerConfig(), oldest_first=True) if reader.first_position > 1 else None
        ledger = restored.ledger if restored else Ledger(LedgerConfig())
        frames = 0
        for frame in reader.frames(ledger.position, link=restored.link if restored else None):
            try:
                apply_frame(ledger, frame)
            except (AssertionError, LookupError) as error:
                raise BrokenInvariantError(
                    f"an event at position {ledger.position + 1} cannot have happened: {error or type(error).__name__}",
                    reason="INVARIANT_BROKEN",
                ) from error
            frames += 1
            progress(ledger.position, reader.end_position)
    ledger.book.rehash(digest_version)
    try:
        ledger.book.audit()
    except AssertionError as error:
        raise BrokenInvariantError(f"the state at position {ledger.position} contradicts itself: {error}") from error
    jobs = len(ledger.book.jobs)
    proof = Proof(reader.first_position, ledger.position, frames, jobs, ledger.digest, reader.epoch)
    return proof, ledger
