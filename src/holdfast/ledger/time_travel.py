"""The past of a journal: the history of a job, an earlier state, and the verification of all events.

These functions read an archive of any engine; they change nothing in it, and only pin the frames that they read.
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
from holdfast.journal.archive import JournalArchive, JournalView
from holdfast.journal.errors import JournalError
from holdfast.journal.port import Frame
from holdfast.ledger.recovery import apply_frame, restore

#: Whether an event, at its position, is past the requested moment.
Moment = Callable[[int, AnyEvent], bool]


class BrokenInvariantError(JournalError):
    """The journal's files are intact, but their events contradict an invariant."""


class VerificationSummary(msgspec.Struct, frozen=True):
    """The summary of a successful verification."""

    first_position: int
    end_position: int
    frames: int
    jobs: int
    digest: int
    epoch: int


def all_events(archive: JournalArchive, after: int = 0) -> Iterator[tuple[int, AnyEvent]]:
    """Yields every event past `after` that is still in the journal, with its position."""
    with archive.pin(max(after, 1)):
        view = archive.view()
        yield from events_of(view.frames(max(after, view.first_position - 1)), after)


def events_of(frames: Iterable[Frame], after: int = 0) -> Iterator[tuple[int, AnyEvent]]:
    """Yields the events of these frames past `after`, with their positions."""
    for frame in frames:
        for position, event in enumerate(events.decode(frame.body), frame.first_position):
            if position > after:
                yield position, event


def about(frames: Iterable[Frame], job_id: str) -> Iterator[Entry]:
    """Yields the history entries of one job in these frames."""
    # Events contain job ids verbatim, so an event without these bytes is not decoded.
    name = job_id.encode(errors="replace")
    for frame in frames:
        for at, event in events.decode_with(frame.body, name):
            yield from entries_about(frame.first_position + at, event, job_id)


def history(archive: JournalArchive, job_id: str) -> list[Entry]:
    """Returns all entries about one job that are still in the journal, oldest first."""
    with archive.pin(1):
        view = archive.view()
        found = list(about(view.frames(view.first_position - 1), job_id))
    if not found:
        raise no_history(job_id, view.first_position)
    return found


def no_history(job_id: str, first_position: int) -> NotFoundError:
    """The error for a job without events in the journal."""
    message = f"the journal has no events of job {job_id!r}; it reaches back to position {first_position}"
    return NotFoundError(message, reason="JOB_NOT_FOUND")


def state_at(archive: JournalArchive, is_past: Moment) -> Ledger:
    """Returns the state before the first event for which `is_past(position, event)` holds."""
    with archive.pin(1):
        view = archive.view()
        if view.first_position > 1:
            ledger = _state_from_snapshot(archive, view, is_past)
        else:
            ledger = _replayed(Ledger(LedgerConfig()), view, None, is_past)
    ledger.state.rehash(DIGEST_VERSION)
    return ledger


def _state_from_snapshot(archive: JournalArchive, view: JournalView, is_past: Moment) -> Ledger:
    """Returns the state by replay from the oldest good snapshot; `NotFoundError` for a moment before it."""
    restored = restore(archive, LedgerConfig(), oldest_first=True)
    ledger = restored.ledger
    if ledger.position + 1 < view.first_position:
        raise NotFoundError(
            f"the journal begins at position {view.first_position}, and no snapshot covers the part before"
        )
    start = ledger.position
    state = _replayed(ledger, view, restored.link, is_past)
    if state.position == start and is_past(start, events.Started(state.state.last_ms, 0)):
        raise NotFoundError(f"history reaches back to position {start} only; earlier events were deleted")
    return state


def _replayed(ledger: Ledger, view: JournalView, link: int | None, is_past: Moment) -> Ledger:
    for frame in view.frames(ledger.position, link=link):
        for position, event in enumerate(events.decode(frame.body), frame.first_position):
            if is_past(position, event):
                return ledger
            ledger.apply(event)
    return ledger


def verify(archive: JournalArchive, progress: Callable[[int, int], None]) -> VerificationSummary:
    """Verifies the journal as `verified` does, and returns only the proof."""
    return verified(archive, progress)[0]


def verified(
    archive: JournalArchive, progress: Callable[[int, int], None], digest_version: int = DIGEST_VERSION
) -> tuple[VerificationSummary, Ledger]:
    """Replays the whole journal and checks every invariant of the log; raises at the first violation.

    Frames: checksums, links, positions, epochs. Events: legal moves only, tokens that only grow, one lease per job,
    results only under an existing lease, time that never goes back. State: the digest of each frame, and at the end
    every cross-reference. `progress(position, end)` is called after each frame. The digest in the proof has the version
    `digest_version`, whatever the versions of the files are.
    """
    with archive.pin(1):
        view = archive.view()
        restored = restore(archive, LedgerConfig(), oldest_first=True) if view.first_position > 1 else None
        ledger = restored.ledger if restored else Ledger(LedgerConfig())
        frames = 0
        for frame in view.frames(ledger.position, link=restored.link if restored else None):
            try:
                apply_frame(ledger, frame)
            except (AssertionError, LookupError) as error:
                raise BrokenInvariantError(
                    f"an event at position {ledger.position + 1} cannot have happened: {error or type(error).__name__}",
                    reason="INVARIANT_BROKEN",
                ) from error
            frames += 1
            progress(ledger.position, view.end_position)
    ledger.state.rehash(digest_version)
    try:
        ledger.state.audit()
    except AssertionError as error:
        raise BrokenInvariantError(f"the state at position {ledger.position} is inconsistent: {error}") from error
    jobs = len(ledger.state.jobs)
    proof = VerificationSummary(view.first_position, ledger.position, frames, jobs, ledger.digest, view.epoch)
    return proof, ledger
