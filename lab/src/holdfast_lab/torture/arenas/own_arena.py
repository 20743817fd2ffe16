"""Arenas that start their programs themselves, and replace killed ones."""

from holdfast_lab.torture.arenas.arena_folder import ArenaFolder
from holdfast_lab.torture.arenas.programs import ArenaPrograms
from holdfast_lab.torture.ports import ArenaProcess


class OwnArena:
    """The part of the port `Arena` that is about processes; subclasses create the folder and the programs."""

    _arena_folder: ArenaFolder
    _programs: ArenaPrograms

    def processes(self) -> list[ArenaProcess]:
        """Returns all programs."""
        return list(self._programs.programs)

    def expect(self, pid: int) -> None:
        """Registers a process that a fault is about to kill."""
        self._arena_folder.expected_exits.expect(pid)

    def no_room(self) -> int:
        """Returns how many requests were refused because the disk was full."""
        return self._programs.no_room()

    def trimmed(self) -> int:
        """Returns how many journal segments were removed; 0 in topologies without a Holdfast journal."""
        return 0

    def strange(self) -> list[str]:
        """Returns problems that no fault explains."""
        return self._programs.strange()
