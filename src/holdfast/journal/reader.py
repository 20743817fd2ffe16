"""Reading a journal that may belong to somebody else: nothing is locked, nothing is changed.

A server may be writing meanwhile; what it had made durable when the reader looked is read, and a frame that is being
written is not there yet. Whoever reads while a server runs holds a pin, so that nothing is deleted on the way.
"""

from collections.abc import Iterator

from holdfast.journal.disk import Disk
from holdfast.journal.port import Frame
from holdfast.journal.replay import replay_segments
from holdfast.journal.survey import refuse_damage, survey


class JournalReader:
    """One look at a journal. Raises JournalDamagedError where it is damaged."""

    def __init__(self, disk: Disk, *, digest_version: int) -> None:
        self._disk = disk
        self._digest_version = digest_version
        self._found = survey(disk)
        refuse_damage(self._found)

    @property
    def first_position(self) -> int:
        """The lowest position that is there."""
        return self._found.headers[0].first_position if self._found.headers else 1

    @property
    def end_position(self) -> int:
        """The last position that was there."""
        return self._found.end_position

    @property
    def epoch(self) -> int:
        """The highest epoch that was there."""
        return self._found.epoch

    def frames(self, after: int = 0, *, link: int | None = None) -> Iterator[Frame]:
        """Yield the frames past `after`, verified; see `Journal.replay` for what is raised."""
        return replay_segments(
            self._disk,
            self._found.headers,
            digest_version=self._digest_version,
            after=after,
            until=self.end_position,
            link=link,
        )
