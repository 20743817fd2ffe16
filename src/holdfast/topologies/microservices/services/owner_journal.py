"""What an owner keeps on disk: frames of its events, snapshots of its state, and the way back from both.

A frame's body is the log time of its last event (8 bytes), then each event behind its size (4 bytes); so what a frame
will take is known exactly before it is written.

Invariants: nothing but the journal and its snapshots is read; after each frame the state's digest equals the one that
was written with it, or the start is refused; a damaged snapshot is never silent, and never fatal while the journal
still reaches back far enough to do without it.
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, Self

import msgspec

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
from holdfast.journal.reader import JournalReader
from holdfast.journal.snapshot import SnapshotHeader, list_snapshots, read_snapshot, read_snapshot_header

_TIME = struct.Struct(">Q")
_SIZE = struct.Struct(">I")
#: What a frame adds to the events in it, and what each event adds to itself.
FRAME_BYTES = FRAME_OVERHEAD + _TIME.size
EVENT_BYTES = _SIZE.size


class Machine(Protocol):
    """The state of one owner: pure, and changed by `apply` alone."""

    @property
    def digest(self) -> int:
        """64 bits that follow from all events so far; cheap, and equal in every process."""
        ...

    @property
    def digest_version(self) -> int:
        """What the digest is computed by."""
        ...

    def rehash(self, version: int) -> None:
        """Goes over to a version of the digest, which also images are then read under; see core/digest.py."""
        ...

    def encode(self, event: Any) -> bytes:  # noqa: ANN401 - each machine has events of its own
        """One event, for the journal."""
        ...

    def decode(self, data: bytes) -> Any:  # noqa: ANN401
        """The event that `encode` was given; `msgspec.MsgspecError` for what no version ever wrote."""
        ...

    def apply(self, event: Any) -> None:  # noqa: ANN401
        """Changes the state; cannot fail."""
        ...

    def empty(self) -> "Machine":
        """Another machine of this kind, without any event."""
        ...

    def image(self) -> Iterator[bytes]:
        """The whole state, digest included, in parts of some hundred kilobytes."""
        ...

    def restore(self, chunks: Iterable[bytes]) -> None:
        """Becomes the state of an image, whatever it was before."""
        ...


def join(last_ms: int, events: list[bytes]) -> bytes:
    """The body of one frame."""
    parts = [_TIME.pack(last_ms)]
    for data in events:
        parts += (_SIZE.pack(len(data)), data)
    return b"".join(parts)


def split(body: bytes) -> tuple[int, list[bytes]]:
    """The log time of the last event of a frame, and its events; `msgspec.ValidationError` for any other body."""
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
    """An open journal under a new epoch, whose whole content the machine has seen."""

    journal: FileJournal
    last_ms: int
    warnings: list[str]

    @classmethod
    def of(cls, machine: Machine, disk: Disk, config: JournalConfig, *, now_ms: int, new_cluster_id: bytes) -> Self:
        """Opens the journal and rebuilds the state; raises a `JournalError` that says what to do, changing nothing."""
        restored = RestoredOwner([])

        def position_restored() -> int:
            # Once the directory is ours: nobody deletes the snapshot while it is read.
            restored.begin(machine, disk)
            return restored.position

        journal = FileJournal.open(
            disk, config, now_ms=now_ms, new_cluster_id=new_cluster_id, verify_after=position_restored
        )
        recovered = cls(journal, restored.last_ms, restored.warnings)
        try:
            for frame in journal.replay(restored.position, link=restored.link):
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
    """How far the newest good snapshot reaches; without one, the beginning."""

    warnings: list[str]
    position: int = 0
    link: int | None = None
    last_ms: int = 0

    def begin(self, machine: Machine, disk: Disk) -> None:
        """Gives the machine the state of that snapshot."""
        for position in reversed(list_snapshots(disk)):
            try:
                header = read_snapshot_header(disk, position)
                # Twice: a machine is not given a part of a state.
                for _ in read_snapshot(disk, position):
                    pass
            except SnapshotDamagedError as error:
                self.warnings.append(f"snapshot at position {position} was passed over: {error}")
                continue
            _restore(machine, disk, header)
            self.position, self.link, self.last_ms = header.position, header.link, header.log_time_ms
            return


def read_into(machine: Machine, disk: Disk, reader: JournalReader, progress: Callable[[int, int], None]) -> int:
    """Gives a machine all that a directory holds, which may be another's; returns its log time."""
    restored = RestoredOwner([])
    restored.begin(machine, disk)
    last_ms = restored.last_ms
    for frame in reader.frames(restored.position, link=restored.link):
        last_ms = max(last_ms, replay_frame(machine, frame))
        progress(frame.last_position, reader.end_position)
    return last_ms


def _restore(machine: Machine, disk: Disk, header: SnapshotHeader) -> None:
    machine.rehash(header.digest_version)
    try:
        machine.restore(read_snapshot(disk, header.position))
    except msgspec.MsgspecError as error:
        raise UnreadableEventError(
            f"the snapshot at position {header.position} holds what this version does not know ({error});"
            " start the version that wrote it",
            reason="SNAPSHOT_UNKNOWN",
        ) from error
    if header.digest != machine.digest:
        raise _diverged(f"the snapshot at position {header.position}", machine.digest, header.digest)


def replay_frame(machine: Machine, frame: Frame) -> int:
    """Applies one frame and compares the digest; returns its log time."""
    machine.rehash(frame.digest_version)
    try:
        last_ms, events = split(frame.body)
        for data in events:
            machine.apply(machine.decode(data))
    except msgspec.MsgspecError as error:
        raise UnreadableEventError(
            f"the frame at position {frame.first_position} holds events that this version does not know ({error});"
            " start the version that wrote them",
            reason="EVENT_UNKNOWN",
        ) from error
    if len(events) != frame.count or frame.digest != machine.digest:
        raise _diverged(f"the frame that ends at position {frame.last_position}", machine.digest, frame.digest)
    return last_ms


def _diverged(what: str, found: int, written: int) -> ReplayDivergedError:
    return ReplayDivergedError(
        f"replaying {what} gives digest {found:016x}, but {written:016x} was written with it; nothing was changed."
        " This is a bug: keep the directory.",
        reason="REPLAY_DIVERGED",
    )
