"""The programs that an arena starts itself: started in stages, stopped in reverse order, none left behind."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence

from holdfast_lab.measure.process_tree import argv, tree
from holdfast_lab.torture.arenas.expected_exits import ExpectedExits
from holdfast_lab.torture.arenas.logs import Log
from holdfast_lab.torture.arenas.restarted_program import RestartedProgram

#: Time limit for descendants to end after their parent.
_LEAVE_S = 10.0
_LOOK_S = 0.05


class ArenaPrograms:
    """All programs of an arena; `strange` returns the problems of any of them."""

    def __init__(
        self, expected_exits: ExpectedExits, *stages: Sequence[RestartedProgram], may_refuse: bool = False
    ) -> None:
        """`may_refuse` allows programs to exit at start because their engine is down."""
        self._expected_exits = expected_exits
        self._may_refuse = may_refuse
        self._stages = stages
        self.programs = [program for stage in stages for program in stage]
        self._logs = {program.log: Log(program.log) for program in self.programs}

    async def start(self) -> None:
        """Starts stage by stage; returns once all programs are ready."""
        for stage in self._stages:
            await asyncio.gather(*(program.start() for program in stage))

    def log(self, program: RestartedProgram) -> Log:
        """Returns the log of a program, read up to now."""
        found = self._logs[program.log]
        found.read()
        return found

    def no_room(self) -> int:
        """Returns how many requests the programs have refused because the disk was full."""
        return sum(self.log(program).no_room for program in self.programs)

    def strange(self) -> list[str]:
        """Returns unexpected log lines, bugs, and programs that exited unexpectedly."""
        lines = list(self._expected_exits.strange)
        for log in self._logs.values():
            log.read()
            lines += log.strange
            if not self._may_refuse:
                lines += log.refusals
        return lines

    async def stop(self) -> None:
        """Sends TERM stage by stage; a process that remains is killed, which is a finding."""
        family = {pid: argv(pid) for program in self.programs if program.pid() for pid in tree(program.pid())}
        for stage in reversed(self._stages):
            for troubles in await asyncio.gather(*(program.stop() for program in stage)):
                self._expected_exits.strange += troubles
        await self._see_off(family)

    async def _see_off(self, family: dict[int, list[str]]) -> None:
        """Waits until all processes are gone; a pid with another command by now belongs to another process."""

        def left() -> list[int]:
            return [pid for pid, command in family.items() if command and argv(pid) == command]

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LEAVE_S):
                while left():  # noqa: ASYNC110 - these are not child processes: their end sends no notification
                    await asyncio.sleep(_LOOK_S)
        for pid in left():
            self._expected_exits.strange.append(
                f"stayed after the end and had to be killed: {' '.join(family[pid][:8])}"
            )
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
