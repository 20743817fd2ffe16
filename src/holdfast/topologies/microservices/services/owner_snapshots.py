"""Snapshots of an owner's state.

The maker replays the sealed segments onto the previous snapshot, into a machine of its own, beside the service: the
service's loop never reads or encodes the whole state, however large it is.
"""

import contextlib
from collections.abc import Callable

from holdfast.core.digest import DIGEST_VERSION
from holdfast.errors import HoldfastError
from holdfast.journal.disk import Disk
from holdfast.journal.pins import pin
from holdfast.journal.replay import read_headers, read_sealed
from holdfast.journal.snapshot import SnapshotHeader, write_snapshot
from holdfast.journal.whole_write import remove_if_present
from holdfast.ledger.ports import SyncThread
from holdfast.observe.logs import get_logger
from holdfast.topologies.microservices.services.owner_journal import RestoredOwner, StateMachine, replay_frame


class ReplayBuilder:
    """Makes snapshots on a thread of this process, for disks that no other process can read."""

    def __init__(
        self, machine: StateMachine, disk: Disk, aside: SyncThread, fatal: Callable[[BaseException], None]
    ) -> None:
        """`fatal` is called with an error that is a bug."""
        self._machine = machine
        self._disk = disk
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

        self._aside.run(lambda: take_snapshot(self._machine.empty(), self._disk), made, is_lone=False)


def take_snapshot(machine: StateMachine, disk: Disk) -> int:
    """Replays all sealed segments into an empty machine and writes its image.

    Returns the position of the snapshot, or 0 if there is nothing new.
    """
    restored = RestoredOwner([])
    restored.begin(machine, disk)
    position, link, last_ms = restored.position, restored.link, restored.last_ms
    with pin(disk, position + 1):
        for frame in read_sealed(disk, after=position, link=link):
            last_ms = max(last_ms, replay_frame(machine, frame))
            position, link = frame.last_position, frame.checksum
        if position == restored.position:
            return 0
        assert link is not None
        machine.rehash(DIGEST_VERSION)
        header = SnapshotHeader(
            digest_version=DIGEST_VERSION,
            cluster_id=read_headers(disk)[0].cluster_id,
            position=position,
            link=link,
            log_time_ms=last_ms,
            digest=machine.digest,
        )
        try:
            write_snapshot(disk, header, machine.image())
        except OSError:
            with contextlib.suppress(OSError):  # the failing disk may refuse this, too
                remove_if_present(disk, header.name)
            raise
    return position
