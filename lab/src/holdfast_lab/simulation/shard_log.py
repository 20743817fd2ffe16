"""The frames of one shard that can not be lost any more, in the order of the database's log, with their checks.

Every frame follows the one before it, links to it, and has the epoch that leads then; epochs never go back, and none is
led twice. A row of the inbox becomes exactly one job, in the transaction that deletes the row. The witness checks the
contents.
"""

from holdfast.core import events
from holdfast.core.events import Created
from holdfast.topologies.cluster.frame_checksum import verify
from holdfast.topologies.cluster.ports import StoredFrame
from holdfast_lab.simulation.swarm import SwarmSettings
from holdfast_lab.simulation.violation import require
from holdfast_lab.simulation.witness import LogWitness

INBOX = b"inbox row "


class ShardLog:
    """The confirmed log of one shard."""

    def __init__(self, settings: SwarmSettings) -> None:
        self.witness = LogWitness(settings)
        self.link = 0
        #: The epoch that leads at this point of the database's log, and those that a coordinator has led.
        self.epoch = 0
        self._led: set[int] = set()
        #: The rows of the inbox that became jobs, and those that were deleted.
        self.moved: set[int] = set()
        self.deleted: set[int] = set()

    def take(self, frame: StoredFrame) -> None:
        """Takes in the next frame."""
        at = f"the frame at {frame.first_position}"
        require(frame.first_position == self.witness.position + 1, f"{at} follows position {self.witness.position}")
        verify(frame, shard=0, after=self.witness.position, link=self.link)
        require(frame.epoch == self.epoch, f"{at} has epoch {frame.epoch} while epoch {self.epoch} is leading")
        self.link = frame.checksum
        self._note_inbox(frame)
        self.witness.take(frame.body, frame.count, frame.digest)

    def lead(self, epoch: int) -> None:
        """Notes the epoch that leads from here on."""
        require(epoch >= self.epoch, f"epoch {epoch} leads after epoch {self.epoch}")
        self.epoch = epoch

    def begin(self, epoch: int) -> None:
        """Notes that a coordinator begins to lead."""
        require(epoch not in self._led, f"epoch {epoch} was led twice")
        self._led.add(epoch)

    def _note_inbox(self, frame: StoredFrame) -> None:
        if INBOX not in frame.body:
            return
        for event in events.decode(frame.body):
            for job in event.jobs if isinstance(event, Created) else ():
                if job.payload.startswith(INBOX):
                    row = int(job.payload.removeprefix(INBOX))
                    require(row not in self.moved, f"row {row} of the inbox became two jobs")
                    self.moved.add(row)

    def delete(self, row: int) -> None:
        """Notes that a row of the inbox is gone, after the frame of the same transaction."""
        require(row in self.moved, f"row {row} of the inbox was deleted, and is no job")
        self.deleted.add(row)

    def check_inbox(self) -> None:
        """Checks, between two transactions, that the rows that became jobs are gone."""
        left = self.moved - self.deleted
        require(not left, f"the rows {sorted(left)} of the inbox became jobs and are still there")
