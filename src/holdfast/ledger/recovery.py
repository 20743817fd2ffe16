"""Recovery of a ledger: the newest good snapshot, then every frame after it.

Invariants: only the journal and its snapshots are read; after each frame the digest of the state equals the digest in
the frame, otherwise the start is refused; a damaged snapshot always causes a warning, and is not fatal as long as the
journal reaches back far enough to replace it.
"""

from collections.abc import Callable, Iterator

import msgspec

from holdfast.core import events, image
from holdfast.core.digest import DIGEST_VERSION
from holdfast.core.events import AnyEvent
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.journal.archive import SnapshotStore
from holdfast.journal.directory_archive import DirectoryArchive
from holdfast.journal.disk import Disk
from holdfast.journal.errors import (
    RESTORE,
    PositionRemovedError,
    ReplayDivergedError,
    SnapshotDamagedError,
    UnreadableEventError,
)
from holdfast.journal.file import FileJournal
from holdfast.journal.port import Frame, JournalConfig

#: Called with the stage (`snapshot` or `journal`), the amount done, and the total; may raise to abort the recovery.
Progress = Callable[[str, int, int], None]


def ignore_progress(stage: str, done: int, total: int) -> None:
    """Ignores the progress."""


class RestoredSnapshot(msgspec.Struct, frozen=True):
    """A ledger from a snapshot; `link` is the checksum of the journal's frame at its position."""

    ledger: Ledger
    link: int | None
    warnings: list[str]


class RecoveredLedger(msgspec.Struct, frozen=True):
    """The state with which a coordinator starts. The journal is open and locked, with a new epoch."""

    journal: FileJournal
    ledger: Ledger
    warnings: list[str]


def recover(
    disk: Disk,
    journal_config: JournalConfig,
    ledger_config: LedgerConfig,
    *,
    now_ms: int,
    new_cluster_id: bytes,
    progress: Progress = ignore_progress,
) -> RecoveredLedger:
    """Opens a directory's journal and rebuilds the state; on failure, raises a `JournalError` that says what to do."""
    restored: RestoredSnapshot | None = None

    def position_restored() -> int:
        # Runs when the directory is locked, so that no process deletes the snapshot while it is read.
        nonlocal restored
        progress("snapshot", 0, 0)
        restored = restore(DirectoryArchive(disk), ledger_config, proves_digest=False, progress=progress)
        return restored.ledger.position

    journal = FileJournal.open(
        disk, journal_config, now_ms=now_ms, new_cluster_id=new_cluster_id, verify_after=position_restored
    )
    assert restored is not None
    try:
        begin = restored.ledger.position
        for frame in journal.replay(begin, link=restored.link):
            progress("journal", frame.first_position - begin, journal.end_position - begin)
            apply_frame(restored.ledger, frame)
    except PositionRemovedError as error:
        journal.close()
        problem = "; ".join([error.message, *restored.warnings, RESTORE])
        raise PositionRemovedError(problem, reason=error.reason) from error
    except BaseException:
        journal.close()
        raise
    # New frames are written with the digest of the current version.
    restored.ledger.state.rehash(DIGEST_VERSION)
    return RecoveredLedger(journal, restored.ledger, restored.warnings)


def restore(
    store: SnapshotStore,
    config: LedgerConfig,
    *,
    oldest_first: bool = False,
    proves_digest: bool = True,
    progress: Progress = ignore_progress,
) -> RestoredSnapshot:
    """Returns the ledger of the newest (or oldest) good snapshot, or an empty ledger."""
    warnings: list[str] = []
    for position in sorted(store.snapshots(), reverse=not oldest_first):
        try:
            header = store.snapshot_header(position)
            chunks = reported_chunks(store, position, progress)
            # A snapshot with an earlier digest version is hashed in any case, to convert it to the current one.
            proves = proves_digest or header.digest_version != DIGEST_VERSION
            ledger = image.load(chunks, config, header.digest_version, proves_digest=proves)
        except (SnapshotDamagedError, msgspec.MsgspecError) as error:
            warnings.append(f"snapshot at position {position} was skipped: {error}")
            continue
        if (header.position, header.digest) == (ledger.position, ledger.digest):
            return RestoredSnapshot(ledger, header.link, warnings)
        warnings.append(f"snapshot at position {position} was skipped: its header and its state differ")
    return RestoredSnapshot(Ledger(config), None, warnings)


def reported_chunks(store: SnapshotStore, position: int, progress: Progress) -> Iterator[bytes]:
    """Yields the chunks of a snapshot, and reports progress before each."""
    done, total = 0, store.snapshot_bytes(position)
    for chunk in store.snapshot_chunks(position):
        progress("snapshot", done, total)
        done += len(chunk)
        yield chunk


def apply_frame(ledger: Ledger, frame: Frame) -> None:
    """Applies one frame and compares the digest. After an error, the ledger must be discarded."""
    ledger.state.rehash(frame.digest_version)
    for event in decoded(frame):
        ledger.apply(event)
    if ledger.position != frame.last_position or frame.digest != ledger.digest:
        what = f"the frame that ends at position {frame.last_position}"
        raise ReplayDivergedError(what, found=ledger.digest, written=frame.digest)


def decoded(frame: Frame) -> list[AnyEvent]:
    """Returns the events of a frame; raises `UnreadableEventError` if this version does not know one of them."""
    try:
        return events.decode(frame.body)
    except msgspec.MsgspecError as error:
        raise UnreadableEventError.in_frame(frame.first_position, error) from error
