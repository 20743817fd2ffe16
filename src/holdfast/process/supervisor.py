"""All processes of a topology: started in order, kept alive, ended in the reverse order, and none left behind.

What is started together is a stage: its roles do not need each other, and they end together, before those that were
started earlier. So workers hand back or finish what they have while whoever they tell it to is still there.
"""

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.process.kept_process import KeptProcess, Role

Lines = dict[str, dict[str, Any]]

#: How long a stage may take to end once somebody is in a hurry.
_HURRY_S = 3.0
#: After this long, whoever watches is told again what is waited for.
_PATIENCE_S = 5.0


class StoppedError(Exception):
    """Somebody asked for the end before everything was ready."""


class Supervisor:
    """Processes that are kept until `stop`. Whoever started anything here has to `stop` and `wait`."""

    def __init__(self, roles: Sequence[Role]) -> None:
        self._first = roles
        self._stages: list[list[KeptProcess]] = []
        self._stops = 0
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()
        self._ending: asyncio.Task[None] | None = None

    async def start(self) -> Lines:
        """Starts the first stage: each role's ready line, by its name. Fails as `add` does."""
        return await self.add(self._first)

    async def add(self, roles: Sequence[Role]) -> Lines:
        """Starts one more stage, for roles that need those before it.

        Raises what a role refused before it was ready, with everything ended by then; `StoppedError` after a stop.
        """
        if self._stopping.is_set():
            raise StoppedError
        stage = [KeptProcess(role) for role in roles]
        self._stages.append(stage)
        for process in stage:
            process.start()
        await self._until_settled(stage)
        refusals = [process.refusal for process in stage if process.refusal is not None]
        if refusals:
            await self._give_up()
            raise _together(refusals)
        return {process.role.name: process.line for process in stage if process.line is not None}

    def stop(self) -> None:
        """Once: all end in good order, the last stage first. Again: each stage has little time. Once more: at once."""
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
        """Until somebody asks for the end."""
        await self._stopping.wait()

    async def wait(self) -> None:
        """Until everything has ended after a stop."""
        await self._stopping.wait()
        assert self._ending is not None
        await self._ending

    def _all(self) -> list[KeptProcess]:
        return [process for stage in self._stages for process in stage]

    async def _until_settled(self, stage: Sequence[KeptProcess]) -> None:
        """Until each is ready or one has refused; on a terminal it is said who is waited for."""
        stopping = asyncio.create_task(self._stopping.wait())
        settling = {asyncio.create_task(process.settled.wait()): process for process in stage}
        waiting = set(settling)
        try:
            while waiting and not any(process.refusal for process in stage):
                _tell(f"waiting for {', '.join(settling[task].role.name for task in settling if task in waiting)}")
                await asyncio.wait({*waiting, stopping}, timeout=_PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
                if self._stopping.is_set():
                    raise StoppedError
                waiting = {task for task in waiting if not task.done()}
        finally:
            for task in (stopping, *settling):
                task.cancel()

    async def _give_up(self) -> None:
        """What is there is of no use without the role that refused."""
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
        """Whether it ended before anybody was in a hurry."""
        hurry = asyncio.create_task(self._hurry.wait())
        await asyncio.wait([ended, hurry], return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        return ended.done()


def _together(refusals: Sequence[HoldfastError]) -> HoldfastError:
    """One error of the first one's kind that names all who refused."""
    message = "\n".join(refusal.message for refusal in refusals)
    return type(refusals[0])(message, reason=refusals[0].reason, details=refusals[0].details)


def _tell(sentence: str) -> None:
    if sys.stderr.isatty():
        # One write: `print` would make two, and the line of another process could come in between.
        sys.stderr.write(f"holdfast: {sentence}\n")
