"""Reading a journal that may belong to somebody else: nothing is locked, nothing is changed.

A server may be writing meanwhile; what it had made durable when the reader looked is read, and a frame that is being
written is not there yet. Such a frame can look like a damaged one, so what looks damaged is looked at again: damage
stays. Whoever reads while a server runs holds a pin, so that nothing is deleted on the way.
"""

import time
from collections.abc import Iterator

from holdfast.journal.disk import Disk
from holdfast.journal.errors import JournalDamagedError
from holdfast.journal.port import Frame
from holdfast.journal.replay import replay_segments
from holdfast.journal.survey import Survey, refuse_damage, survey

#: A frame is written within microseconds, unless its writer is made to wait in the middle of it.
_LOOKS = 6
_PAUSE_S = 0.01


class JournalReader:
    """One look at a journal. Raises JournalDamagedError where it is damaged."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._found = sound_survey(disk)

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
            after=after,
            until=self.end_position,
            link=link,
        )


def sound_survey(disk: Disk) -> Survey:
    """What is there, once no frame is being written; raises JournalDamagedError for what stays damaged."""
    for _ in range(_LOOKS - 1):
        try:
            return _refusing(disk)
        except JournalDamagedError:
            time.sleep(_PAUSE_S)
    return _refusing(disk)


def _refusing(disk: Disk) -> Survey:
    found = survey(disk)
    refuse_damage(found)
    return found
