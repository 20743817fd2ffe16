"""All clients together: they start, stop, wait for their jobs to end, and read each job once more."""

import asyncio
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from holdfast_lab.history.files import Writer, now_us
from holdfast_lab.history.records import Schedule
from holdfast_lab.torture.load.call_log import CallLog, CallTally
from holdfast_lab.torture.load.client import Options, TortureClient
from holdfast_lab.torture.load.frozen_interface import FrozenInterface
from holdfast_lab.torture.load.grpc_calls import Channels, owner_of
from holdfast_lab.torture.load.grpc_interface import GrpcInterface
from holdfast_lab.torture.load.http_interface import HttpInterface
from holdfast_lab.torture.load.interfaces import LoadInterface, LostError, RefusedError
from holdfast_lab.torture.load.random_orders import OrderGenerator
from holdfast_lab.torture.load.schedule_load import ScheduleLoad
from holdfast_lab.torture.task_group import together

#: The interfaces of the clients, in turn.
_KINDS = ("grpc", "http", "frozen")
#: Interfaces for repeats: both support the same options.
_OTHERS = {"grpc": "http", "http": "grpc"}
#: The number of known jobs that are read at the end; the store's facts cover all jobs.
READS_MAX = 20_000
_READERS = 8
_AGAIN_S = 0.5
_HTTP_WAIT_S = 10.0


class LoadConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses, the options of the clients, and the folder of the records."""

    grpc: str
    http: str
    folder: Path
    seed: int
    clients: int = 6
    has_schedules: bool = True
    #: Whether the clocks of schedules are never set.
    has_true_clocks: bool = True


class TortureLoad:
    """Call `begin`, `run`, `settle`, `look_again`, `close`, in this order."""

    def __init__(self, place: LoadConfig) -> None:
        self._place = place
        self.tally = CallTally()
        #: Calls that the topology does not support, and why.
        self.left_out: dict[str, str] = {}
        #: Some of the jobs that had not ended at the last check, including jobs whose id no client received.
        self.left: Sequence[str] = []
        self.calls = ["submit", "get", "result", "cancel", "list", "retry"]
        self._writers: list[Writer] = []
        self._clients: list[TortureClient] = []
        self._schedule_load: ScheduleLoad | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()

    @property
    def known(self) -> int:
        """The number of jobs whose ids the clients received."""
        return sum(len(client.known) for client in self._clients)

    async def begin(self) -> None:
        """Finds out which calls are supported, and creates the clients; called before the first fault."""
        missing = await self._missing()
        if "administration" in missing:
            self.left_out |= dict.fromkeys(("pause", "resume"), missing["administration"])
        else:
            self.calls += ["pause", "resume"]
        for number in range(self._place.clients):
            kind = _KINDS[number % len(_KINDS)]
            self._clients.append(self._client(f"{kind}-{number}", kind, has_pause=not number and "pause" in self.calls))
        if self._place.has_schedules and "schedules" not in missing:
            self.calls.append("schedule")
            self._schedule_load = ScheduleLoad(
                Channels(self._place.grpc),
                self._log("ticking", "grpc"),
                has_true_clocks=self._place.has_true_clocks,
            )
            await self._schedule_load.set()
        else:
            self.left_out["schedule"] = missing.get("schedules", "this topology has no schedules")

    async def _missing(self) -> dict[str, str]:
        """Returns the missing capabilities; repeats the request, because the front may not be ready yet."""
        interface = HttpInterface(self._place.http)
        end_s = time.monotonic() + _HTTP_WAIT_S
        try:
            while True:
                try:
                    return dict(await interface.capabilities())
                except LostError:
                    if time.monotonic() > end_s:
                        raise
                    await asyncio.sleep(_AGAIN_S)
        finally:
            await interface.close()

    def _client(self, name: str, kind: str, *, has_pause: bool = False, is_reader: bool = False) -> TortureClient:
        interface = self._interface(kind)
        nodes = len(self._place.grpc.split(","))
        order_generator = OrderGenerator(self._place.seed, name, lambda key: owner_of(key, nodes))
        options = Options(has_retry=kind != "frozen", has_pause=has_pause)
        other = None if is_reader else _OTHERS.get(kind)
        return TortureClient(
            name,
            interface,
            order_generator,
            self._log(name, interface.via),
            options,
            other=(self._interface(other), self._log(f"{name}-again", other)) if other else None,
        )

    def _interface(self, kind: str) -> LoadInterface:
        if kind == "http":
            return HttpInterface(self._place.http)
        channels = Channels(self._place.grpc)
        return FrozenInterface(channels) if kind == "frozen" else GrpcInterface(channels)

    def _log(self, name: str, via: str) -> CallLog:
        writer = Writer(self._place.folder / f"client-{name}.jsonl")
        self._writers.append(writer)
        return CallLog(name, via, writer, self.tally)

    def run(self) -> None:
        """Starts the clients as tasks."""
        self._tasks = [asyncio.create_task(client.run(self._stopping)) for client in self._clients]

    def problem(self) -> BaseException | None:
        """Returns the error of a client that ended before it was stopped."""
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()):
                return error
        return None

    async def settle(self, bound_s: float) -> int:
        """Stops submits and waits until no job is open; returns the time of that, or 0 if the bound has passed."""
        self._stopping.set()
        giving_up = asyncio.Event()
        handle = asyncio.get_running_loop().call_later(bound_s, giving_up.set)
        try:
            await asyncio.gather(*self._tasks)
            if any(not self.tally.answered[call] for call in self.calls):
                await together(client.every_deed(giving_up) for client in self._clients)
            if self._schedule_load is not None:
                await self._schedule_load.pause(giving_up)
            await together(client.settle(giving_up) for client in self._clients)
            return await self._until_none_is_open(giving_up)
        finally:
            handle.cancel()

    async def _until_none_is_open(self, giving_up: asyncio.Event) -> int:
        """Includes jobs whose ids no client received; checks at least once, to set `left`."""
        interface = GrpcInterface(Channels(self._place.grpc))
        try:
            while True:
                with suppress(LostError, RefusedError):
                    self.left = await interface.open_jobs()
                    if not self.left and not giving_up.is_set():
                        return now_us()
                if giving_up.is_set():
                    return 0
                await asyncio.sleep(_AGAIN_S)
        finally:
            await interface.close()

    async def look_again(self) -> int:
        """Submits known keys again, and reads every known job over gRPC and HTTP; returns the number of responses."""
        known = sorted({job_id for client in self._clients for job_id in client.known})
        if len(known) > READS_MAX:
            known = random.Random(self._place.seed).sample(known, READS_MAX)
        readers = [
            self._client(f"reader-{kind}-{n}", kind, is_reader=True)
            for kind in ("grpc", "http")
            for n in range(_READERS // 2)
        ]
        before = self._looks()
        try:
            await together(client.ask_again() for client in self._clients)
            await together(
                _look(reader, known[place % (_READERS // 2) :: _READERS // 2]) for place, reader in enumerate(readers)
            )
        finally:
            for reader in readers:
                await reader.close()
        return self._looks() - before

    def _looks(self) -> int:
        return self.tally.answered["get"]

    def schedules(self) -> list[Schedule]:
        """Returns the schedules whose ticks are checked."""
        return self._schedule_load.judged() if self._schedule_load else []

    async def close(self) -> None:
        """Ends everything that still runs; safe at any time."""
        self._stopping.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in self._clients:
            await client.close()
        if self._schedule_load is not None:
            await self._schedule_load.close()
        for writer in self._writers:
            writer.close()
        self._writers.clear()


async def _look(reader: TortureClient, job_ids: list[str]) -> None:
    for job_id in job_ids:
        for _ in range(3):
            try:
                await reader.look_again(job_id)
                break
            except LostError:
                await asyncio.sleep(_AGAIN_S)
