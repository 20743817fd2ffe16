"""Arenas whose programs are their own: they start each of them, and replace whoever is killed."""

from holdfast.lab.torture.arenas.company import Company
from holdfast.lab.torture.arenas.grounds import Grounds
from holdfast.lab.torture.ports import Process


class OwnArena:
    """That part of the port `Arena` which is about processes; whoever extends it makes the grounds and the company."""

    _grounds: Grounds
    _company: Company

    def processes(self) -> list[Process]:
        """All programs."""
        return list(self._company.programs)

    def expect(self, pid: int) -> None:
        """A fault is about to kill this process."""
        self._grounds.deaths.expect(pid)

    def no_room(self) -> int:
        """How often somebody was refused something because the disk was full."""
        return self._company.no_room()

    def trimmed(self) -> int:
        """How many files of journals were removed; none where there is no journal of ours."""
        return 0

    def strange(self) -> list[str]:
        """What went wrong that no fault explains."""
        return self._company.strange()
