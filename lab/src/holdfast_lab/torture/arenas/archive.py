"""Copies of journal segments: the server keeps a short history, but the checker needs all of it.

Every closed segment is copied beside the arena. A pin keeps the segments that are not copied yet. So the server trims
as usual, but never before a segment is copied.
"""

import asyncio
import shutil
from contextlib import ExitStack, suppress
from pathlib import Path

from holdfast.journal import OsDisk, pin
from holdfast.journal.segment import segment_names

_EVERY_S = 0.5
_NEW = ".new"


class Archive:
    """The closed segments of one journal: `take` copies new ones, `close` releases the pin."""

    def __init__(self, journal: Path, copies: Path) -> None:
        self._journal = journal
        self._copies = copies
        copies.mkdir(parents=True, exist_ok=True)
        self._pin = ExitStack()
        self._pinned = 0
        self._hold(1)

    def take(self) -> None:
        """Copies each segment that is followed by another one, and then allows the server to remove it."""
        names = segment_names([path.name for path in self._journal.iterdir()])
        for name in names[:-1]:
            # A start removes empty segments of earlier starts, in spite of the pin.
            with suppress(FileNotFoundError):
                self._copy(name)
        if names:
            self._hold(_first_position(names[-1]))

    def _copy(self, name: str) -> None:
        if not (self._copies / name).exists():
            shutil.copyfile(self._journal / name, self._copies / f"{name}{_NEW}")
            (self._copies / f"{name}{_NEW}").rename(self._copies / name)

    def trimmed(self) -> int:
        """Returns how many of the copied segments the server has removed."""
        return sum(not (self._journal / path.name).exists() for path in self._copies.iterdir())

    def close(self) -> None:
        """Releases the pin, so that the server may remove any segment."""
        self._pin.close()

    def _hold(self, position: int) -> None:
        """Creates the new pin before releasing the old one; on a full disk the old one stays."""
        if position == self._pinned:
            return
        with suppress(OSError):
            fresh = ExitStack()
            fresh.enter_context(pin(OsDisk(self._journal), position))
            self._pin.close()
            self._pin, self._pinned = fresh, position


class Archives:
    """The archives of all journals of an arena, from `open`, when all journals exist, until `close`."""

    def __init__(self, copies: Path) -> None:
        self._copies = copies
        self._archives: dict[str, Archive] = {}
        self._is_over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def open(self, journals: dict[str, Path]) -> None:
        """Starts copying the segments of these journals; the keys are the names of the journals."""
        self._archives = {name: Archive(path, self._copies / name) for name, path in journals.items()}
        self._task = asyncio.create_task(self._keep())

    def of(self, name: str) -> Path:
        """The folder with the copies of a journal."""
        return self._copies / name

    def trimmed(self) -> int:
        """Returns how many segments were removed by their servers and exist only as copies."""
        return sum(archive.trimmed() for archive in self._archives.values())

    async def close(self) -> None:
        """Stops copying; called after the servers have ended."""
        self._is_over.set()
        try:
            if self._task is not None:
                await self._task
        finally:
            for archive in self._archives.values():
                archive.close()

    async def _keep(self) -> None:
        while not self._is_over.is_set():
            for archive in self._archives.values():
                await asyncio.to_thread(archive.take)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_over.wait(), _EVERY_S)


def add_archived(directory: Path, archive: Path | None) -> None:
    """Adds the trimmed segments to a journal, so that it starts with its first event again."""
    kept = segment_names([path.name for path in directory.iterdir()])
    first = _first_position(kept[0]) if kept else 0
    copied = segment_names([path.name for path in archive.iterdir()]) if archive is not None else []
    # Two segments may start at the same position: then the earlier one was empty, and the one of the later epoch
    # counts.
    for name in {_first_position(name): name for name in copied}.values():
        if _first_position(name) < first:
            assert archive is not None
            shutil.copyfile(archive / name, directory / name)


def _first_position(name: str) -> int:
    return int(name.partition("-")[0])
