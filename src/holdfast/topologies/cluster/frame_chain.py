"""The chain of a shard's frames: each frame continues exactly where the one before it ends, and links to it."""

from holdfast.journal.errors import JournalDamagedError
from holdfast.journal.port import Frame
from holdfast.topologies.cluster.frame_checksum import verify
from holdfast.topologies.cluster.ports import StoredFrame

_ADVICE = "restore the database from a backup"


class FrameChain:
    """Verifies frames in order. It advances only over a frame that is the successor of the one before it."""

    def __init__(self, shard: int, position: int = 0, link: int | None = 0) -> None:
        """`link` is the checksum of the frame that ends at `position`.

        Without it, the first frame may begin earlier, and its link is not compared.
        """
        self._shard = shard
        self.position = position
        self.link = link
        self._epoch = 0

    def check(self, stored: StoredFrame) -> Frame:
        """Returns the frame and advances; raises JournalDamagedError if it is damaged or no successor."""
        problem = self._problem(stored)
        if problem:
            raise JournalDamagedError(f"shard {self._shard}", 0, stored.first_position, problem, advice=_ADVICE)
        self.position, self.link, self._epoch = stored.last_position, stored.checksum, stored.epoch
        return Frame(
            stored.first_position, stored.count, stored.digest, stored.body, stored.checksum, stored.digest_version
        )

    def _problem(self, stored: StoredFrame) -> str:
        if not verify(stored):
            return "the checksum of the frame does not match"
        follows = stored.first_position <= self.position + 1 <= stored.last_position
        if not follows or (self.link is not None and stored.first_position != self.position + 1):
            return f"position {self.position + 1} was expected"
        if self.link is not None and stored.link != self.link:
            return "it does not link to the frame before it"
        return f"its epoch {stored.epoch} follows epoch {self._epoch}" if stored.epoch < self._epoch else ""
