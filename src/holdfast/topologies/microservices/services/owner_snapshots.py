"""Snapshots of an owner's state.

The maker replays the sealed frames onto the previous snapshot, into a machine of its own, beside the service: the
service's loop never reads or encodes the whole state, however large it is.
"""

import contextlib
from collections.abc import Callable

from holdfast.core.digest import DIGEST_VERSION
from holdfast.errors import HoldfastError
from holdfast.journal.archive import JournalArchive
from holdfast.journal.snapshot import SnapshotHeader
from holdfast.ledger.ports import SyncThread
from holdfast.observe.logs import get_logger
from holdfast.topologies.microservices.services.owner_journal import RestoredOwner, StateMachine, replay_frame


class ReplayBuilder:
    """Makes snapshots on a thread of this process, for archives that no other process can read."""

    def __init__(
        self, machine: StateMachine, archive: JournalArchive, aside: SyncThread, fatal: Callable[[BaseException], None]
    ) -> None:
        """`fatal` is called with an error that is a bug."""
        self._machine = machine
        self._archive = archive
        self._aside = aside
        self._fatal = fatal

    def start(self, done: Callable[[str], None]) -> None:
        """Replays into an empty machine of the served kind; calls `done` with the problem, empty on success."""

        def made(result: int | BaseException) -> None:
            if isinstance(result, (OSError, HoldfastError)):
                get_logger().error("snapshot_failed", message=str(result))
                done(str(result))
            elif isinstance(result, BaseException):
                self._fatal(result)
            else:
                done("")

        self._aside.run(lambda: take_snapshot(self._machine.empty(), self._archive), made, is_lone=False)


def take_snapshot(machine: StateMachine, archive: JournalArchive) -> int:
    """Replays all sealed frames into an empty machine and writes its image.

    Returns the position of the snapshot, or 0 if there is nothing new.
    """
    restored = RestoredOwner([])
    restored.begin(machine, archive)
    position, link, last_ms = restored.position, restored.link, restored.last_ms
    with archive.pin(position + 1):
        for frame in archive.sealed_frames(position, link=link):
            last_ms = max(last_ms, replay_frame(machine, frame))
            position, link = frame.last_position, frame.checksum
        if position == restored.position:
            return 0
        assert link is not None
        machine.rehash(DIGEST_VERSION)
        header = SnapshotHeader(
            digest_version=DIGEST_VERSION,
            cluster_id=archive.cluster_id(),
            position=position,
            link=link,
            log_time_ms=last_ms,
            digest=machine.digest,
        )
        try:
            archive.write_snapshot(header, machine.image())
        except OSError:
            with contextlib.suppress(OSError):  # the failing disk may refuse this, too
                archive.remove_snapshot(header.position)
            raise
    return position
