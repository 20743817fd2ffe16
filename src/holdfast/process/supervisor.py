"""Starts the processes of a topology in stages, restarts them when they end, and stops them in reverse order.

A stage is a group of roles that do not depend on each other; they are started together, and stopped together before the
stages that were started earlier. So workers finish or hand back their jobs while the servers still run.
"""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from holdfast.errors import HoldfastError
from holdfast.process.supervised_process import ProcessSpec, SupervisedProcess

Lines = dict[str, dict[str, Any]]
Stage = list[SupervisedProcess]
Wait = asyncio.Task[Literal[True]]

#: How long a stage may take to end after a second stop request.
_HURRY_S = 3.0
#: Interval at which the names of processes that are not ready are printed again.
_PATIENCE_S = 5.0


class StoppedError(Exception):
    """Stop was requested before all processes were ready."""


class Supervisor:
    """Processes that are restarted until `stop`. After `start`, the caller must `stop` and `wait`."""

    def __init__(self, roles: Sequence[ProcessSpec]) -> None:
        self._first = roles
        self._stages: list[list[SupervisedProcess]] = []
        self._stops = 0
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()
        self._ending: asyncio.Task[None] | None = None

    async def start(self) -> Lines:
        """Starts the first stage and returns the ready lines by role name. Raises as `add` does."""
        return await self.add(self._first)

    async def add(self, roles: Sequence[ProcessSpec]) -> Lines:
        """Starts another stage, for roles that depend on the earlier ones; returns its ready lines by role name.

        Raises as `ready` does.
        """
        return await self.ready(self.begin(roles))

    def begin(self, roles: Sequence[ProcessSpec]) -> Stage:
        """Starts another stage without waiting for it. Raises `StoppedError` after a stop."""
        if self._stopping.is_set():
            raise StoppedError
        stage = [SupervisedProcess(role) for role in roles]
        self._stages.append(stage)
        for process in stage:
            process.start()
        return stage

    async def listening(self, stage: Stage) -> Lines:
        """Waits until all processes of a stage listen; returns the lines with their addresses. Raises as `ready`."""
        await self._until({process: process.listening for process in stage})
        lines = {process.role.name: process.listening_line for process in stage}
        return {name: line for name, line in lines.items() if line is not None}

    async def ready(self, stage: Stage) -> Lines:
        """Waits until all processes of a stage are ready; returns the ready lines by role name.

        If any role refuses to start, all processes are stopped and its refusal is raised; `StoppedError` after a stop.
        """
        await self._until({process: process.settled for process in stage})
        return {process.role.name: process.line for process in stage if process.line is not None}

    def stop(self) -> None:
        """First call: stops gracefully, the last stage first. Second: limits the time of each stage. Third: kills."""
        self._stops += 1
        if self._ending is None:
            self._stopping.set()
            self._ending = asyncio.create_task(self._end())
        elif self._stops == 2:  # noqa: PLR2004 - the second time
            self._hurry.set()
        else:
            for process in self._all():
                process.kill()

    async def stopping(self) -> None:
        """Waits until stop is requested."""
        await self._stopping.wait()

    async def wait(self) -> None:
        """Waits until all processes have ended after a stop."""
        await self._stopping.wait()
        assert self._ending is not None
        await self._ending

    def _all(self) -> list[SupervisedProcess]:
        return [process for stage in self._stages for process in stage]

    async def _until(self, awaited: Mapping[SupervisedProcess, asyncio.Event]) -> None:
        """Waits for an event of each process; raises the refusals of any process, after all have ended."""
        stopping = asyncio.create_task(self._stopping.wait())
        waits = {asyncio.create_task(event.wait()): process for process, event in awaited.items()}
        # A process of another stage may refuse, too.
        others = [asyncio.create_task(one.settled.wait()) for one in self._all() if not one.settled.is_set()]
        try:
            await self._wait_for(waits, [stopping, *others])
        finally:
            for task in (stopping, *waits, *others):
                task.cancel()
        if refusals := self._refusals():
            await self._give_up()
            raise _together(refusals)

    async def _wait_for(
        self,
        waits: Mapping[Wait, SupervisedProcess],
        others: Sequence[Wait],
    ) -> None:
        """Returns when all tasks are done or a role has refused; on a terminal it prints the roles that are awaited."""
        waiting = set(waits)
        while waiting and not self._refusals():
            _tell(f"waiting for {', '.join(process.role.name for task, process in waits.items() if task in waiting)}")
            pending = [task for task in others if not task.done()]
            await asyncio.wait({*waiting, *pending}, timeout=_PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
            if self._stopping.is_set():
                raise StoppedError
            waiting = {task for task in waiting if not task.done()}

    def _refusals(self) -> list[HoldfastError]:
        return [process.refusal for process in self._all() if process.refusal is not None]

    async def _give_up(self) -> None:
        """Stops all processes, because a role has refused to start."""
        if self._ending is None:
            self.stop()
        await self.wait()

    async def _end(self) -> None:
        for stage in reversed(self._stages):
            for process in stage:
                process.stop()
            ended = asyncio.gather(*(process.ended() for process in stage))
            if not await self._calmly(ended):
                for process in stage:
                    process.stop()
                await asyncio.wait([ended], timeout=_HURRY_S)
                for process in stage:
                    process.kill()
            await ended

    async def _calmly(self, ended: "asyncio.Future[Any]") -> bool:
        """Waits for the end of a stage; returns False if a second stop request comes first."""
        hurry = asyncio.create_task(self._hurry.wait())
        await asyncio.wait([ended, hurry], return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        return ended.done()


def _together(refusals: Sequence[HoldfastError]) -> HoldfastError:
    """Returns one error of the first refusal's type with the messages of all refusals."""
    message = "\n".join(refusal.message for refusal in refusals)
    return type(refusals[0])(message, reason=refusals[0].reason, details=refusals[0].details)


def _tell(sentence: str) -> None:
    if sys.stderr.isatty():
        # One write: `print` makes two, and the output of another process could come in between.
        sys.stderr.write(f"holdfast: {sentence}\n")
