"""From a directory to a ledger that may serve: the newest good snapshot, then every frame after it.

Invariants: nothing but the journal and its snapshots is read; after each frame the state's digest equals the one that
the coordinator wrote with it, or the start is refused; a damaged snapshot is never silent, and never fatal while the
journal still reaches back far enough to do without it.
"""

from collections.abc import Callable, Iterator

import msgspec

from holdfast.core import events, image
from holdfast.core.digest import DIGEST_VERSION
from holdfast.core.events import AnyEvent
from holdfast.core.ledger import Ledger, LedgerConfig
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
from holdfast.journal.snapshot import list_snapshots, read_snapshot, read_snapshot_header, snapshot_bytes

#: Is told the stage (`snapshot` or `journal`), how much of it is done, and how much there is; may raise to end it.
Progress = Callable[[str, int, int], None]


def tell_nobody(stage: str, done: int, total: int) -> None:
    """The progress of a recovery that has no reader."""


class Restored(msgspec.Struct, frozen=True):
    """A ledger from a snapshot; `link` is the checksum of the frame that the journal must have there."""

    ledger: Ledger
    link: int | None
    warnings: list[str]


class RecoveredLedger(msgspec.Struct, frozen=True):
    """What a coordinator starts from. The journal is open, locked, and under a new epoch."""

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
    progress: Progress = tell_nobody,
) -> RecoveredLedger:
    """Opens the journal and rebuilds the state; raises a `JournalError` that says what to do, changing nothing."""
    restored: Restored | None = None

    def position_restored() -> int:
        # Once the directory is ours: nobody deletes the snapshot while it is read.
        nonlocal restored
        progress("snapshot", 0, 0)
        restored = restore(disk, ledger_config, proves_digest=False, progress=progress)
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
    # From here on frames are written, and with the digest of the present version.
    restored.ledger.book.rehash(DIGEST_VERSION)
    return RecoveredLedger(journal, restored.ledger, restored.warnings)


def restore(
    disk: Disk,
    config: LedgerConfig,
    *,
    oldest_first: bool = False,
    proves_digest: bool = True,
    progress: Progress = tell_nobody,
) -> Restored:
    """The ledger of the newest (or oldest) snapshot that is good, or an empty one."""
    warnings: list[str] = []
    for position in sorted(list_snapshots(disk), reverse=not oldest_first):
        try:
            header = read_snapshot_header(disk, position)
            chunks = _told(disk, position, progress)
            # A snapshot of an earlier version is hashed anyway, in order to go over to the present one.
            proves = proves_digest or header.digest_version != DIGEST_VERSION
            ledger = image.load(chunks, config, header.digest_version, proves_digest=proves)
        except (SnapshotDamagedError, msgspec.MsgspecError) as error:
            warnings.append(f"snapshot at position {position} was passed over: {error}")
            continue
        if (header.position, header.digest) == (ledger.position, ledger.digest):
            return Restored(ledger, header.link, warnings)
        warnings.append(f"snapshot at position {position} was passed over: its header and its state differ")
    return Restored(Ledger(config), None, warnings)


def _told(disk: Disk, position: int, progress: Progress) -> Iterator[bytes]:
    """The chunks of a snapshot, with a word before each."""
    done, total = 0, snapshot_bytes(disk, position)
    for chunk in read_snapshot(disk, position):
        progress("snapshot", done, total)
        done += len(chunk)
        yield chunk


def apply_frame(ledger: Ledger, frame: Frame) -> None:
    """Applies one frame and compares the digest; a frame is applied whole or the ledger is to be thrown away."""
    ledger.book.rehash(frame.digest_version)
    for event in decoded(frame):
        ledger.apply(event)
    if ledger.position != frame.last_position or frame.digest != ledger.digest:
        raise ReplayDivergedError(
            f"replaying the frame that ends at position {frame.last_position} gives digest {ledger.digest:016x}, but"
            f" {frame.digest:016x} was written with it; nothing was changed. This is a bug: keep the directory.",
            reason="REPLAY_DIVERGED",
        )


def decoded(frame: Frame) -> list[AnyEvent]:
    """The events of a frame; raises `UnreadableEventError` for what this version does not know."""
    try:
        return events.decode(frame.body)
    except msgspec.MsgspecError as error:
        raise UnreadableEventError(
            f"the frame at position {frame.first_position} holds events that this version does not know ({error});"
            " start the version that wrote them",
            reason="EVENT_UNKNOWN",
        ) from error
