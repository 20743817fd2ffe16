"""Arenas that start their programs themselves, and replace killed ones."""

from holdfast_lab.torture.arenas.arena_folder import Grounds
from holdfast_lab.torture.arenas.programs import Company
from holdfast_lab.torture.ports import ArenaProcess


class OwnArena:
    """The part of the port `Arena` that is about processes; subclasses create the folder and the programs."""

    _grounds: Grounds
    _company: Company

    def processes(self) -> list[ArenaProcess]:
        """Returns all programs."""
        return list(self._company.programs)

    def expect(self, pid: int) -> None:
        """Registers a process that a fault is about to kill."""
        self._grounds.deaths.expect(pid)

    def no_room(self) -> int:
        """Returns how many requests were refused because the disk was full."""
        return self._company.no_room()

    def trimmed(self) -> int:
        """Returns how many journal segments were removed; 0 in topologies without a Holdfast journal."""
        return 0

    def strange(self) -> list[str]:
        """Returns problems that no fault explains."""
        return self._company.strange()
