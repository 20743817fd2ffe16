"""Reads a journal that another process may have open; locks and changes nothing.

A server may be writing meanwhile: the reader returns the frames that were durable when it started. A frame that is just
being written can look damaged, so a damaged journal is read again; real damage remains. A reader beside a running
server holds a pin, so that no segment is deleted meanwhile.
"""

import time
from collections.abc import Iterator

from holdfast.journal.disk import Disk
from holdfast.journal.errors import JournalDamagedError
from holdfast.journal.port import Frame
from holdfast.journal.replay import replay_segments
from holdfast.journal.survey import Survey, refuse_damage, survey

#: A frame is written within microseconds, unless its writer is interrupted.
_LOOKS = 6
_PAUSE_S = 0.01


class JournalReader:
    """A view of a journal at one instant. Raises JournalDamagedError if it is damaged."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._found = sound_survey(disk)

    @property
    def first_position(self) -> int:
        """The lowest position found."""
        return self._found.headers[0].first_position if self._found.headers else 1

    @property
    def end_position(self) -> int:
        """The last position found."""
        return self._found.end_position

    @property
    def epoch(self) -> int:
        """The highest epoch found."""
        return self._found.epoch

    def frames(self, after: int = 0, *, link: int | None = None) -> Iterator[Frame]:
        """Yield the frames past `after`, verified; raise as `Journal.replay` does."""
        return replay_segments(
            self._disk,
            self._found.headers,
            after=after,
            until=self.end_position,
            link=link,
        )


def sound_survey(disk: Disk) -> Survey:
    """Survey the journal between two writes; raise JournalDamagedError if damage remains after several attempts."""
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
