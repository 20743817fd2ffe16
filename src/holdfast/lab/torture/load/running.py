"""All clients together: they begin, they stop, they wait for their jobs to end, and look at each of them once more."""

import asyncio
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from holdfast.lab.history.files import Writer, now_us
from holdfast.lab.history.records import Schedule
from holdfast.lab.torture.load.client import Client, Options
from holdfast.lab.torture.load.drawing import Drawer
from holdfast.lab.torture.load.faces import Face, LostError, RefusedError
from holdfast.lab.torture.load.frozen_face import FrozenFace
from holdfast.lab.torture.load.grpc_calls import Channels, owner_of
from holdfast.lab.torture.load.grpc_face import GrpcFace
from holdfast.lab.torture.load.http_face import HttpFace
from holdfast.lab.torture.load.notebook import Notebook, Tally
from holdfast.lab.torture.load.ticking import Ticking
from holdfast.lab.torture.together import together

#: Which interfaces the clients use, in turn.
_KINDS = ("grpc", "http", "frozen")
#: Where the same can be asked for again: what has options has them in both.
_OTHERS = {"grpc": "http", "http": "grpc"}
#: At the end every known job is read, up to so many of each run; the store's own facts are about all of them.
READS_MAX = 20_000
_READERS = 8
_AGAIN_S = 0.5
_HTTP_WAIT_S = 10.0


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Whom to ask, how, and where to write it down."""

    grpc: str
    http: str
    folder: Path
    seed: int
    clients: int = 6
    has_schedules: bool = True
    #: Whether nobody sets the clocks that schedules go by.
    has_true_clocks: bool = True


class Load:
    """`begin`, `run`, `settle`, `look_again`, `close`, in this order."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.tally = Tally()
        #: What the topology cannot be asked, and why.
        self.left_out: dict[str, str] = {}
        #: Of the jobs that had not ended when they were last looked for, some; also such as nobody was told of.
        self.left: Sequence[str] = []
        self.calls = ["submit", "get", "result", "cancel", "list", "retry"]
        self._writers: list[Writer] = []
        self._clients: list[Client] = []
        self._ticking: Ticking | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()

    @property
    def known(self) -> int:
        """How many jobs its clients were told of."""
        return sum(len(client.known) for client in self._clients)

    async def begin(self) -> None:
        """Finds out what can be asked here, and makes the clients; nothing is broken yet."""
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
            self._ticking = Ticking(
                Channels(self._place.grpc),
                self._book("ticking", "grpc"),
                has_true_clocks=self._place.has_true_clocks,
            )
            await self._ticking.set()
        else:
            self.left_out["schedule"] = missing.get("schedules", "this topology has no schedules")

    async def _missing(self) -> dict[str, str]:
        """Asked until it is answered: a front may be the last to be ready."""
        face = HttpFace(self._place.http)
        end_s = time.monotonic() + _HTTP_WAIT_S
        try:
            while True:
                try:
                    return dict(await face.capabilities())
                except LostError:
                    if time.monotonic() > end_s:
                        raise
                    await asyncio.sleep(_AGAIN_S)
        finally:
            await face.close()

    def _client(self, name: str, kind: str, *, has_pause: bool = False, is_reader: bool = False) -> Client:
        face = self._face(kind)
        nodes = len(self._place.grpc.split(","))
        drawer = Drawer(self._place.seed, name, lambda key: owner_of(key, nodes))
        options = Options(has_retry=kind != "frozen", has_pause=has_pause)
        other = None if is_reader else _OTHERS.get(kind)
        return Client(
            name,
            face,
            drawer,
            self._book(name, face.via),
            options,
            other=(self._face(other), self._book(f"{name}-again", other)) if other else None,
        )

    def _face(self, kind: str) -> Face:
        if kind == "http":
            return HttpFace(self._place.http)
        channels = Channels(self._place.grpc)
        return FrozenFace(channels) if kind == "frozen" else GrpcFace(channels)

    def _book(self, name: str, via: str) -> Notebook:
        writer = Writer(self._place.folder / f"client-{name}.jsonl")
        self._writers.append(writer)
        return Notebook(name, via, writer, self.tally)

    def run(self) -> None:
        """Lets the clients ask, beside whatever else happens."""
        self._tasks = [asyncio.create_task(client.run(self._stopping)) for client in self._clients]

    def problem(self) -> BaseException | None:
        """What ended a client that nobody had told to stop."""
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()):
                return error
        return None

    async def settle(self, bound_s: float) -> int:
        """Stops submitting and waits until no job is open; when that was, or 0 if it was not within the bound."""
        self._stopping.set()
        giving_up = asyncio.Event()
        handle = asyncio.get_running_loop().call_later(bound_s, giving_up.set)
        try:
            await asyncio.gather(*self._tasks)
            if any(not self.tally.answered[call] for call in self.calls):
                await together(client.every_deed(giving_up) for client in self._clients)
            if self._ticking is not None:
                await self._ticking.pause(giving_up)
            await together(client.settle(giving_up) for client in self._clients)
            return await self._until_none_is_open(giving_up)
        finally:
            handle.cancel()

    async def _until_none_is_open(self, giving_up: asyncio.Event) -> int:
        """Also those that nobody was told of; looked for at least once, so that it can be said which are left."""
        face = GrpcFace(Channels(self._place.grpc))
        try:
            while True:
                with suppress(LostError, RefusedError):
                    self.left = await face.open_jobs()
                    if not self.left and not giving_up.is_set():
                        return now_us()
                if giving_up.is_set():
                    return 0
                await asyncio.sleep(_AGAIN_S)
        finally:
            await face.close()

    async def look_again(self) -> int:
        """Every job that somebody was told of, over gRPC and over HTTP; how many answers there were."""
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
        """The ticks to be judged."""
        return self._ticking.judged() if self._ticking else []

    async def close(self) -> None:
        """Ends everything that still runs; safe at any time."""
        self._stopping.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in self._clients:
            await client.close()
        if self._ticking is not None:
            await self._ticking.close()
        for writer in self._writers:
            writer.close()
        self._writers.clear()


async def _look(reader: Client, job_ids: list[str]) -> None:
    for job_id in job_ids:
        for _ in range(3):
            try:
                await reader.look_again(job_id)
                break
            except LostError:
                await asyncio.sleep(_AGAIN_S)
