"""Which server a command talks to, and how."""

import os
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar

import typer

from holdfast.cli.places import nearby
from holdfast.cli.text import say
from holdfast.errors import InvalidArgumentError, UnavailableError
from holdfast.settings import DEFAULT_CONNECT, ENSEMBLE, ClientSettings, WorkerSettings, addresses_of, masked
from holdfast.settings_sources import load

if TYPE_CHECKING:
    from holdfast.client.access import Access
    from holdfast.client.remote import RemoteJobs
    from holdfast.client.routed import RoutedJobs
    from holdfast.client.transport import Carrier
    from holdfast.settings import Settings
    from holdfast.topologies.embedded.served_ledger import Serving
    from holdfast.topologies.zookeeper.client_api import BiddingJobs
    from holdfast.topologies.zookeeper.ensemble_url import Ensemble

    Client = RemoteJobs | RoutedJobs | BiddingJobs

T = TypeVar("T")

#: Every command that asks a server takes it.
Connect = Annotated[
    str | None,
    typer.Option(
        "--connect",
        metavar="HOST:PORT|DIRECTORY",
        help=(
            "Where the jobs are: a server, all nodes (HOST:PORT,HOST:PORT) in their order, a directory, or zk://HOSTS"
            f" (default: HOLDFAST_CONNECT, else {DEFAULT_CONNECT})."
        ),
        show_default=False,
    ),
]

#: A call that takes longer than this has reached somebody.
_AWAY_S = 2.0
#: How long whoever has the lock of a directory may take until it listens there, and how often it is asked.
_STARTING_S, _PAUSE_S = 5.0, 0.05
_UNREACHABLE = "UNREACHABLE"
#: What a server forgets, and when, is a setting of that server's; a command that looks in must not decide it.
_EVER_MS, _ALL_JOBS, _ALL_BYTES = 3_660 * 86_400_000, 1_000_000_000, 1 << 50


class ServerConnection:
    """One server for the length of a command, which may ask it several things."""

    def __init__(self, connect: str | None, *, may_create: bool = False) -> None:
        """`connect` is the option as it was given; nothing is opened before the first question.

        A command that writes `may_create` a directory that does not exist yet, as an app and a worker do.
        """
        import asyncio

        loaded = load(ClientSettings, flags={"connect": connect}, environment=os.environ, folder=Path.cwd())
        self._is_told = loaded.origins["connect"] != "default"
        self._place = place_of(loaded.settings.connect, may_create=may_create)
        self._access = access_to(loaded.settings)
        if isinstance(self._place, Path):
            check_directory(self._place.parent, may_create=may_create)
        # One loop for all questions: gRPC does not bear a second one in its process.
        self._runner = asyncio.Runner()
        self._client: Client | None = None
        #: What this command serves itself, because nobody else did.
        self._serving: Serving | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._runner:
            self._runner.run(self._close())

    def ask(self, call: "Callable[[Client], Coroutine[Any, Any, T]]") -> T:
        """What the server answers; fails at once if it does not."""
        return self._runner.run(self._ask(call, may_open=True))

    def wait_for(self, call: "Callable[[Client], Coroutine[Any, Any, T]]", patience_s: float) -> T:
        """What the server answers at last: whoever waits for a job waits for a server that is started again, too."""
        return self._runner.run(self._wait_for(call, patience_s))

    async def _ask(self, call: "Callable[[Client], Awaitable[T]]", *, may_open: bool) -> T:
        from holdfast.client.remote import RemoteJobs

        if self._client is None:
            self._client = self._direct() or RemoteJobs(await self._carrier(may_open=may_open))
        try:
            return await call(self._client)
        except UnavailableError as error:
            if self._is_told or error.reason != _UNREACHABLE:
                raise
            raise _nothing_told() from error

    async def _wait_for(self, call: "Callable[[Client], Awaitable[T]]", patience_s: float) -> T:
        import asyncio

        away_since_s: float | None = None
        while True:
            began_s = time.monotonic()
            try:
                return await self._ask(call, may_open=False)
            except UnavailableError:
                now_s = time.monotonic()
                if away_since_s is None or now_s - began_s > _AWAY_S:  # it was there meanwhile
                    away_since_s = now_s
                    say("holdfast: the server went away; waiting for it to come back")
                if now_s - away_since_s > patience_s:
                    raise
            await self._close()
            await asyncio.sleep(_AWAY_S / 4)

    def _direct(self) -> "RoutedJobs | BiddingJobs | None":
        """Several nodes or an ensemble, if that is what was named."""
        if isinstance(self._place, str | Path):
            return None
        if not isinstance(self._place, list):
            from holdfast.topologies.zookeeper.client_api import BiddingJobs

            return BiddingJobs(self._place)
        from holdfast.client.routed import UnnamedJobs

        return UnnamedJobs(self._place, self._access)

    async def _carrier(self, *, may_open: bool) -> "Carrier":
        """Whoever waits for a job does not open its directory: a server that is started again would find it in use."""
        if isinstance(self._place, str):
            from holdfast.client.grpc_transport import GrpcCarrier

            return GrpcCarrier(self._place, self._access)
        assert isinstance(self._place, Path)
        import asyncio

        from holdfast.client.socket_transport import SocketCarrier
        from holdfast.journal.errors import DirectoryLockedError

        until_s = time.monotonic() + _STARTING_S
        while True:
            try:
                return await SocketCarrier.connect(self._place)
            except UnavailableError as error:  # nobody serves it, or somebody who was killed left its socket behind
                if not may_open:
                    raise _not_served(self._place.parent) from error
            try:
                self._serving = await _opened(self._place.parent)
            except DirectoryLockedError:  # its holder is about to listen: it has just come, and recovers
                if time.monotonic() > until_s:
                    raise
                await asyncio.sleep(_PAUSE_S)

    async def _close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()
        serving, self._serving = self._serving, None
        if serving is not None:
            await serving.close()


def ask(connect: str | None, call: "Callable[[Client], Coroutine[Any, Any, T]]", *, may_create: bool = False) -> T:
    """What the server answers to the one question of a command."""
    with ServerConnection(connect, may_create=may_create) as connection:
        return connection.ask(call)


async def _opened(folder: Path) -> "Serving":
    """Serves a directory for the length of a command, as any other process that opens it would; forgets no job."""
    from holdfast.settings import Settings
    from holdfast.topologies.embedded.served_ledger import Serving

    serving = Serving(forgetting_nothing(Settings(data=str(folder))))
    await serving.open()
    return serving


def forgetting_nothing(settings: "Settings") -> "Settings":
    """The settings for a single command: it removes no finished job from the directory that it serves meanwhile.

    A process that stays needs its own limits, because the jobs that it keeps are in its memory.
    """
    from msgspec.structs import replace

    return replace(
        settings,
        retain_ms=_EVER_MS,
        retain_failed_ms=_EVER_MS,
        retain_jobs=_ALL_JOBS,
        retain_bytes=_ALL_BYTES,
        memory_bytes=_ALL_BYTES,
    )


def _not_served(folder: Path) -> UnavailableError:
    message = (
        f"nobody has {str(folder)!r} open: start a worker of its app (`holdfast worker -A module:app`) or"
        f" `holdfast server --data {folder}`"
    )
    return UnavailableError(message, reason=_UNREACHABLE)


def check_directory(folder: Path, *, may_create: bool) -> None:
    """Refuse a directory of another topology, and one without jobs unless the command may make them there."""
    from holdfast.process.directory_owner import topology_of

    topology = topology_of(folder)
    if topology == "embedded":
        return
    if topology:
        raise _other_topology(folder, topology)
    if not may_create:
        example = f"; there are some in {found!r}: --connect {found}" if (found := nearby()) else ""
        message = f"no process serves the directory {str(folder)!r}, and there are no jobs in it{example}"
        raise UnavailableError(message, reason=_UNREACHABLE)
    if not folder.exists():
        say_created(folder)


def say_created(folder: Path) -> None:
    """Tell the user that a directory is made: the name may be a host whose port was forgotten."""
    shown = str(folder.absolute())
    say(f"holdfast: making the directory {shown!r} for jobs; a server would be named with its port, as HOST:PORT")


def _other_topology(folder: Path, topology: str) -> UnavailableError:
    message = (
        f"{str(folder)!r} is the data directory of the topology {topology}, whose own processes serve its jobs: start"
        f" them with `holdfast up --topology {topology} --data {folder}`, and name their address, for example --connect"
        f" {DEFAULT_CONNECT}"
    )
    return UnavailableError(message, reason=_UNREACHABLE)


def _nothing_told() -> UnavailableError:
    """For whoever has jobs in a directory, and did not say in which."""
    message = f"no server answers at {DEFAULT_CONNECT}: {say_where()}; or start a server with `holdfast up`"
    return UnavailableError(message, reason=_UNREACHABLE)


def say_where() -> str:
    """How to name the directory of the jobs, with one of this folder as the example."""
    example = f", for example --connect {found}" if (found := nearby()) else ""
    return f"say --connect DIRECTORY where jobs are kept in one{example}"


def access_to(settings: ClientSettings | WorkerSettings) -> "Access":
    """What to show a server, as its URL and the settings say."""
    from holdfast.client.access import access_of

    return access_of(settings.connect, fallback=settings.token)


def place_of(target: str, name: str = "--connect", *, may_create: bool = False) -> "str | list[str] | Path | Ensemble":
    """A server's address, those of several nodes, the socket of a directory, or an ensemble; else an error.

    `name` is the option as the user knows it. The directory must exist unless the caller `may_create` it.
    """
    if target.startswith(ENSEMBLE):
        from holdfast.topologies.zookeeper.ensemble_url import ensemble_of

        return ensemble_of(target)
    addresses = addresses_of(target)
    if addresses:
        return addresses if len(addresses) > 1 else addresses[0]
    if "://" not in target and (Path(target).is_dir() or (may_create and _can_be_new(target))):
        from holdfast.server.unix_socket import SOCKET_NAME

        return Path(target) / SOCKET_NAME
    missing = "" if ":" in target else ", which is no directory here"
    raise InvalidArgumentError(
        f"expected {name} to be host:port, holdfast://host:port, several of them with commas, each once,"
        f" a directory of jobs, or zk://host:port/path, got {masked(target)!r}{missing}",
        reason="ADDRESS_INVALID",
    )


def _can_be_new(target: str) -> bool:
    """Whether a directory may be made of it: what looks like an address with a mistake in it is none."""
    return not Path(target).exists() and ("/" in target or ":" not in target)
