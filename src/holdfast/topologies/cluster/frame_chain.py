"""The chain of a shard's frames: each frame continues exactly where the one before it ends, and links to it."""

from holdfast.journal.port import Frame
from holdfast.topologies.cluster.frame_checksum import damaged, verify
from holdfast.topologies.cluster.ports import StoredFrame


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
        verify(stored, shard=self._shard, after=self.position, link=self.link)
        if problem := self._problem(stored):
            raise damaged(self._shard, stored.first_position, problem)
        self.position, self.link, self._epoch = stored.last_position, stored.checksum, stored.epoch
        return Frame(
            stored.first_position, stored.count, stored.digest, stored.body, stored.checksum, stored.digest_version
        )

    def _problem(self, stored: StoredFrame) -> str:
        is_repeated = stored.first_position <= self.position and self.link is not None
        if is_repeated or stored.last_position <= self.position:
            return f"the frame there repeats positions up to {self.position}"
        if stored.epoch < self._epoch:
            return f"the frame there has epoch {stored.epoch} and follows epoch {self._epoch}"
        return ""
