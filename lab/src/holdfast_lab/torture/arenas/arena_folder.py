"""The folder of an arena, with the environment, the clock and the disk of its processes.

`data` holds their data, `archive` the trimmed journal segments, `logs` their logs, `records` the records of jobs;
`clock` is their wall clock.
"""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from holdfast_lab.measure.processes import default_environment
from holdfast_lab.torture.arenas.expected_exits import ExpectedExits
from holdfast_lab.torture.arenas.restarted_program import HOLDFAST, ProgramSpec, RestartedProgram
from holdfast_lab.torture.faults.clock_file import FileClock
from holdfast_lab.torture.faults.disks import SmallDisk
from holdfast_lab.torture.jobs import RECORDS

#: Turns one command line into another one.
Wrap = Callable[[Sequence[str]], Sequence[str]]
#: Large enough for the data that half an hour of jobs produces.
_DISK_BYTES = 768 << 20


class ArenaFolder:
    """The folder of one arena; its creator must call `close`."""

    def __init__(self, folder: Path, app: str, *, has_small_disk: bool) -> None:
        self.folder = folder.absolute()
        self.app = app
        self.data = self.folder / "data"
        self.archive = self.folder / "archive"
        self.logs = self.folder / "logs"
        self.records = self.folder / "records"
        for path in (self.data, self.logs, self.records):
            path.mkdir(parents=True, exist_ok=True)
        self.expected_exits = ExpectedExits()
        self.clock = FileClock(self.folder / "clock")
        self.disk = SmallDisk(self.data, _DISK_BYTES) if has_small_disk else None
        self._is_open = True

    def environment(self) -> dict[str, str]:
        """The environment of this process without `HOLDFAST_*`, plus the variables for the clock and the records."""
        return {**default_environment(), **self.clock.environment, RECORDS: str(self.records)}

    def program(
        self, role: str, name: str, arguments: Sequence[str], wrap: Wrap = list, *, may_refuse: bool = False
    ) -> RestartedProgram:
        """Creates a program that the arena starts itself; it logs to a file with its name."""
        part = ProgramSpec(role, name, wrap([*HOLDFAST, *arguments]), may_refuse)
        log = self.logs / f"{name}.log"
        return RestartedProgram(part, environment=self.environment(), log=log, expected_exits=self.expected_exits)

    def close(self) -> None:
        """Copies the data from the small disk to the large one and unmounts the small one; idempotent."""
        if self.disk is None or not self._is_open:
            return
        self._is_open = False
        if self.disk.no_filling:  # there was no separate disk
            return
        self.disk.free()
        kept = self.folder / "kept"
        try:
            shutil.copytree(self.data, kept, symlinks=True, ignore=_sockets)
        except shutil.Error as error:
            raise OSError(f"cannot copy the data from the small disk: {error.args[0][0][2]}") from None
        finally:
            self.disk.close()
        self.data.rmdir()
        kept.rename(self.data)


def _sockets(folder: str, names: list[str]) -> list[str]:
    """Names the sockets in a folder, which cannot be copied."""
    return [name for name in names if (Path(folder) / name).is_socket()]
