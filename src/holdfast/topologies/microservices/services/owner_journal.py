"""The journal of an owner: frames of events, snapshots of the state, and recovery from both.

A frame's body is the log time of its last event (8 bytes), then each event after its size (4 bytes); so the size of a
frame is known exactly before it is written.

Invariants: recovery reads only the journal and its snapshots; after each frame the digest of the state equals the
stored one, or the start is refused; a damaged snapshot is always reported, and is not fatal as long as the journal
reaches back far enough.
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, Self

import msgspec

from holdfast.journal.archive import JournalArchive, JournalView, SnapshotStore
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
from holdfast.journal.port import FRAME_OVERHEAD, Frame, JournalConfig
from holdfast.journal.snapshot import SnapshotHeader
from holdfast.ledger.recovery import Progress, ignore_progress, reported_chunks

_TIME = struct.Struct(">Q")
_SIZE = struct.Struct(">I")
#: Overhead of a frame, and of each event in it.
FRAME_BYTES = FRAME_OVERHEAD + _TIME.size
EVENT_BYTES = _SIZE.size


class StateMachine(Protocol):
    """The state of one owner: pure, and changed only by `apply`."""

    @property
    def digest(self) -> int:
        """A 64-bit hash that depends on all events so far; cheap, and equal in every process."""
        ...

    @property
    def digest_version(self) -> int:
        """The version of the digest's computation."""
        ...

    def rehash(self, version: int) -> None:
        """Switches to a version of the digest, under which images are then read, too; see core/digest.py."""
        ...

    def encode(self, event: Any) -> bytes:  # noqa: ANN401 - each machine has events of its own
        """Encodes an event for the journal."""
        ...

    def decode(self, data: bytes) -> Any:  # noqa: ANN401
        """Decodes an event; `msgspec.MsgspecError` for bytes that no version ever wrote."""
        ...

    def apply(self, event: Any) -> None:  # noqa: ANN401
        """Changes the state; cannot fail."""
        ...

    def empty(self) -> "StateMachine":
        """Returns another machine of this kind, without any event."""
        ...

    def image(self) -> Iterator[bytes]:
        """Yields the whole state, including the digest, in parts of a few hundred kilobytes."""
        ...

    def restore(self, chunks: Iterable[bytes]) -> None:
        """Replaces the state by that of an image."""
        ...


def join(last_ms: int, events: list[bytes]) -> bytes:
    """Returns the body of one frame."""
    parts = [_TIME.pack(last_ms)]
    for data in events:
        parts += (_SIZE.pack(len(data)), data)
    return b"".join(parts)


def split(body: bytes) -> tuple[int, list[bytes]]:
    """Returns the log time of a frame's last event, and its events; `msgspec.ValidationError` for other bodies."""
    events, at = [], _TIME.size
    try:
        while at < len(body):
            (size,) = _SIZE.unpack_from(body, at)
            at += _SIZE.size
            events.append(body[at : at + size])
            at += size
        (last_ms,) = _TIME.unpack_from(body)
    except struct.error as error:
        raise msgspec.ValidationError(f"the frame is cut off: {error}") from error
    if at != len(body):
        raise msgspec.ValidationError("the last event of the frame is cut off")
    return last_ms, events


class RecoveredOwner(msgspec.Struct):
    """An open journal under a new epoch, replayed into the machine as a whole."""

    journal: FileJournal
    last_ms: int
    warnings: list[str]

    @classmethod
    def of(
        cls,
        machine: StateMachine,
        disk: Disk,
        config: JournalConfig,
        *,
        now_ms: int,
        new_cluster_id: bytes,
        progress: Progress = ignore_progress,
    ) -> Self:
        """Opens the journal and rebuilds the state; a `JournalError` says what to do, and then nothing was changed."""
        restored = RestoredOwner([])

        def position_restored() -> int:
            # Called once the directory is locked, so that no process deletes the snapshot while it is read.
            progress("snapshot", 0, 0)
            restored.begin(machine, DirectoryArchive(disk), progress)
            return restored.position

        journal = FileJournal.open(
            disk, config, now_ms=now_ms, new_cluster_id=new_cluster_id, verify_after=position_restored
        )
        recovered = cls(journal, restored.last_ms, restored.warnings)
        try:
            begin = restored.position
            for frame in journal.replay(begin, link=restored.link):
                progress("journal", frame.first_position - begin, journal.end_position - begin)
                recovered.last_ms = max(recovered.last_ms, replay_frame(machine, frame))
        except PositionRemovedError as error:
            journal.close()
            problem = "; ".join([error.message, *restored.warnings, RESTORE])
            raise PositionRemovedError(problem, reason=error.reason) from error
        except BaseException:
            journal.close()
            raise
        machine.rehash(config.digest_version)
        return recovered


class RestoredOwner(msgspec.Struct):
    """The position of the newest intact snapshot; without one, the beginning."""

    warnings: list[str]
    position: int = 0
    link: int | None = None
    last_ms: int = 0

    def begin(self, machine: StateMachine, store: SnapshotStore, progress: Progress = ignore_progress) -> None:
        """Loads the newest intact snapshot into the machine."""
        for position in reversed(store.snapshots()):
            try:
                header = store.snapshot_header(position)
                # Read twice, so that a damaged snapshot is never loaded in part.
                for _ in reported_chunks(store, position, progress):
                    pass
            except SnapshotDamagedError as error:
                self.warnings.append(f"snapshot at position {position} was passed over: {error}")
                continue
            _restore(machine, store, header, progress)
            self.position, self.link, self.last_ms = header.position, header.link, header.log_time_ms
            return


def read_into(
    machine: StateMachine, archive: JournalArchive, view: JournalView, progress: Callable[[int, int], None]
) -> int:
    """Replays all data of an archive, possibly of another process, into a machine; returns its log time."""
    restored = RestoredOwner([])
    restored.begin(machine, archive)
    last_ms = restored.last_ms
    for frame in view.frames(restored.position, link=restored.link):
        last_ms = max(last_ms, replay_frame(machine, frame))
        progress(frame.last_position, view.end_position)
    return last_ms


def _restore(machine: StateMachine, store: SnapshotStore, header: SnapshotHeader, progress: Progress) -> None:
    machine.rehash(header.digest_version)
    try:
        machine.restore(reported_chunks(store, header.position, progress))
    except msgspec.MsgspecError as error:
        raise UnreadableEventError(
            f"the snapshot at position {header.position} holds data that this version does not know ({error});"
            " start the version that wrote it",
            reason="SNAPSHOT_UNKNOWN",
        ) from error
    if header.digest != machine.digest:
        what = f"the snapshot at position {header.position}"
        raise ReplayDivergedError(what, found=machine.digest, written=header.digest)


def replay_frame(machine: StateMachine, frame: Frame) -> int:
    """Applies one frame and compares the digest; returns its log time."""
    machine.rehash(frame.digest_version)
    try:
        last_ms, events = split(frame.body)
        for data in events:
            machine.apply(machine.decode(data))
    except msgspec.MsgspecError as error:
        raise UnreadableEventError.in_frame(frame.first_position, error) from error
    if len(events) != frame.count or frame.digest != machine.digest:
        what = f"the frame that ends at position {frame.last_position}"
        raise ReplayDivergedError(what, found=machine.digest, written=frame.digest)
    return last_ms
