"""All programs of an arena's own: started in stages, ended in the reverse order, and nobody left behind."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence

from holdfast.lab.compare.process_tree import argv, tree
from holdfast.lab.torture.arenas.deaths import Deaths
from holdfast.lab.torture.arenas.kept_program import KeptProgram
from holdfast.lab.torture.arenas.logs import Log

#: Who ends with its parent may take so long for it.
_LEAVE_S = 10.0
_LOOK_S = 0.05


class Company:
    """`start`, then `stop`; `strange` is what was wrong with any of them."""

    def __init__(self, deaths: Deaths, *stages: Sequence[KeptProgram], may_refuse: bool = False) -> None:
        """Where there is an engine, who finds it away may say so instead of beginning."""
        self._deaths = deaths
        self._may_refuse = may_refuse
        self._stages = stages
        self.programs = [program for stage in stages for program in stage]
        self._logs = {program.log: Log(program.log) for program in self.programs}

    async def start(self) -> None:
        """Stage by stage; returns once all are ready."""
        for stage in self._stages:
            await asyncio.gather(*(program.start() for program in stage))

    def log(self, program: KeptProgram) -> Log:
        """What it has logged so far."""
        found = self._logs[program.log]
        found.read()
        return found

    def no_room(self) -> int:
        """How often any of them has refused something for want of room on the disk."""
        return sum(self.log(program).no_room for program in self.programs)

    def strange(self) -> list[str]:
        """Odd lines, bugs, and who ended by itself."""
        lines = list(self._deaths.strange)
        for log in self._logs.values():
            log.read()
            lines += log.strange
            if not self._may_refuse:
                lines += log.refusals
        return lines

    async def stop(self) -> None:
        """TERM, stage by stage; who stays is killed, and that is strange."""
        family = {pid: argv(pid) for program in self.programs if program.pid() for pid in tree(program.pid())}
        for stage in reversed(self._stages):
            for troubles in await asyncio.gather(*(program.stop() for program in stage)):
                self._deaths.strange += troubles
        await self._see_off(family)

    async def _see_off(self, family: dict[int, list[str]]) -> None:
        """Until all of them are gone; an id that has another command by now is another's."""

        def left() -> list[int]:
            return [pid for pid, command in family.items() if command and argv(pid) == command]

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LEAVE_S):
                while left():  # noqa: ASYNC110 - others' processes tell nobody of their end
                    await asyncio.sleep(_LOOK_S)
        for pid in left():
            self._deaths.strange.append(f"stayed after the end and had to be killed: {' '.join(family[pid][:8])}")
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
