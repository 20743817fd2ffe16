"""The only schedule of a torture: a job every second, from before the first fault until the load ends."""

import asyncio

from holdfast.proto import holdfast_pb2 as pb
from holdfast.proto import holdfast_pb2_grpc as rpc
from holdfast_lab.history.records import Schedule
from holdfast_lab.torture.jobs import TICK
from holdfast_lab.torture.load.call_log import CallLog
from holdfast_lab.torture.load.grpc_calls import Channels, called
from holdfast_lab.torture.load.interfaces import LostError

NAME = "torture-every-second"
_EVERY_MS = 1_000
_AGAIN_S = 0.2


class ScheduleLoad:
    """Creates the schedule, and pauses it at the end."""

    def __init__(self, channels: Channels, log: CallLog, *, has_true_clocks: bool) -> None:
        """If clocks are set ahead, only the latest missed tick is fired, not those of days."""
        self._catch_up = "all" if has_true_clocks else "latest"
        self._channels = channels
        self._stub = channels.stubs(rpc.ScheduleServiceStub)[channels.owner(NAME)]
        self._log = log
        self._first_ms = 0
        self._last_ms = 0

    async def set(self) -> None:
        """Creates the schedule before the first fault, so that its first tick is known."""
        spec = pb.ScheduleSpec(
            name=NAME,
            template=pb.JobTemplate(type=TICK),
            every_ms=_EVERY_MS,
            catch_up=self._catch_up,
            overlap="allow",
        )
        made: list[pb.Schedule] = []

        async def ask() -> None:
            made.append(await called(self._stub.SetSchedule, spec))

        await self._log.do("schedule", ask())
        self._first_ms = made[0].next_at_ms if made else 0

    async def pause(self, stopping: asyncio.Event) -> None:
        """Repeats the call until it succeeds; the ticks before that are checked."""
        while self._first_ms and not stopping.is_set():
            paused: list[pb.Schedule] = []

            async def ask(paused: list[pb.Schedule] = paused) -> None:
                paused.append(
                    await called(self._stub.PauseSchedule, pb.PauseScheduleRequest(name=NAME, is_paused=True))
                )

            try:
                await self._log.do("schedule", ask())
            except LostError:
                await asyncio.sleep(_AGAIN_S)
                continue
            self._last_ms = paused[0].last_tick_ms if paused else 0
            return

    def judged(self) -> list[Schedule]:
        """Returns the ticks that must exist; empty if the schedule was never created or its pause has no response."""
        if not self._first_ms or self._last_ms < self._first_ms:
            return []
        return [Schedule(NAME, _EVERY_MS, self._first_ms, self._last_ms)]

    async def close(self) -> None:
        """Closes its connection."""
        await self._channels.close()
