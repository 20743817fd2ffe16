"""Where an arena is: its folder, what its processes are told, their clock, and the disk that their data is on.

`data` is what they keep, `archive` what they have removed of it, `logs` what they log, `records` what jobs write down;
`clock` is their wall clock.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from holdfast.lab.torture.arenas.deaths import Deaths
from holdfast.lab.torture.arenas.kept_program import HOLDFAST, KeptProgram, Part
from holdfast.lab.torture.faults.clockwork import FileClock
from holdfast.lab.torture.faults.disks import SmallDisk
from holdfast.lab.torture.jobs import RECORDS

#: Makes another command of a command.
Wrap = Callable[[Sequence[str]], Sequence[str]]
#: Large enough for all that half an hour of jobs leaves behind.
_DISK_BYTES = 768 << 20


class Grounds:
    """One folder. Who makes it closes it."""

    def __init__(self, folder: Path, app: str, *, has_small_disk: bool) -> None:
        self.folder = folder.absolute()
        self.app = app
        self.data = self.folder / "data"
        self.archive = self.folder / "archive"
        self.logs = self.folder / "logs"
        self.records = self.folder / "records"
        for path in (self.data, self.logs, self.records):
            path.mkdir(parents=True, exist_ok=True)
        self.deaths = Deaths()
        self.clock = FileClock(self.folder / "clock")
        self.disk = SmallDisk(self.data, _DISK_BYTES) if has_small_disk else None
        self._is_open = True

    def environment(self) -> dict[str, str]:
        """That of whoever runs this, without its settings, and with what the jobs need."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        return {**kept, **self.clock.environment, RECORDS: str(self.records)}

    def program(
        self, role: str, name: str, arguments: Sequence[str], wrap: Wrap = list, *, may_refuse: bool = False
    ) -> KeptProgram:
        """A program of the arena's own, which logs into a file of its name."""
        part = Part(role, name, wrap([*HOLDFAST, *arguments]), may_refuse)
        log = self.logs / f"{name}.log"
        return KeptProgram(part, environment=self.environment(), log=log, deaths=self.deaths)

    def close(self) -> None:
        """What is on the small disk stays, on the large one; a second time does nothing."""
        if self.disk is None or not self._is_open:
            return
        self._is_open = False
        if self.disk.no_filling:  # it was no disk of its own
            return
        self.disk.free()
        kept = self.folder / "kept"
        try:
            shutil.copytree(self.data, kept, symlinks=True, ignore=_sockets)
        except shutil.Error as error:
            raise OSError(f"what was on the small disk cannot be kept: {error.args[0][0][2]}") from None
        finally:
            self.disk.close()
        self.data.rmdir()
        kept.rename(self.data)


def _sockets(folder: str, names: list[str]) -> list[str]:
    """What is no file cannot be copied."""
    return [name for name in names if (Path(folder) / name).is_socket()]
