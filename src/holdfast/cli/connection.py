"""The connection of a command to a server, several nodes, a data directory or a ZooKeeper ensemble."""

import os
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar

import typer

from holdfast.cli.journal_directories import nearby_jobs
from holdfast.cli.text import say
from holdfast.errors import InvalidArgumentError, UnavailableError
from holdfast.sdk.url_schemes import scheme_of
from holdfast.settings import DEFAULT_CONNECT, MEMORY, ClientSettings, WorkerSettings, addresses_of, masked
from holdfast.settings_sources import load

if TYPE_CHECKING:
    from holdfast.client.access import Access
    from holdfast.client.link import Client, DirectBackend
    from holdfast.client.transport import Transport
    from holdfast.settings import Settings
    from holdfast.topologies.embedded.served_ledger import ServedLedger

T = TypeVar("T")

#: The option of every command that sends requests to a server.
Connect = Annotated[
    str | None,
    typer.Option(
        "--connect",
        metavar="HOST:PORT|DIRECTORY",
        help=(
            "Server, all nodes in their order (HOST:PORT,HOST:PORT), data directory, or zk://HOSTS"
            f" (default: HOLDFAST_CONNECT, else {DEFAULT_CONNECT})."
        ),
        show_default=False,
    ),
]

#: A failed call that took longer than this had reached a server.
_AWAY_S = 2.0
#: The time that the process with the lock of a directory has to start listening, and the pause between two attempts.
_STARTING_S, _PAUSE_S = 5.0, 0.05
_UNREACHABLE = "UNREACHABLE"
#: Retention is a setting of the server; a short command must not evict jobs.
_EVER_MS, _ALL_JOBS, ALL_BYTES = 3_660 * 86_400_000, 1_000_000_000, 1 << 50


class ServerConnection:
    """A connection for the duration of a command, which may send several requests."""

    def __init__(self, connect: str | None, *, may_create: bool = False) -> None:
        """`connect` is the value of the option; the first request opens the connection.

        A command that writes may create a missing directory (`may_create`), as an app and a worker do.
        """
        import asyncio

        loaded = load(ClientSettings, flags={"connect": connect}, environment=os.environ, folder=Path.cwd())
        self._is_told = loaded.origins["connect"] != "default"
        self._place = place_of(loaded.settings.connect, may_create=may_create)
        self._access = access_to(loaded.settings)
        if isinstance(self._place, Path):
            check_directory(self._place.parent, may_create=may_create)
        # One event loop for all requests: the connection belongs to it.
        self._runner = asyncio.Runner()
        self._client: Client | None = None
        #: The ledger that this command serves itself, because no other process does.
        self._serving: ServedLedger | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._runner:
            self._runner.run(self._close())

    def ask(self, call: "Callable[[Client], Coroutine[Any, Any, T]]") -> T:
        """Sends a request and returns the reply; fails at once if no server answers."""
        return self._runner.run(self._ask(call, may_open=True))

    def wait_for(self, call: "Callable[[Client], Coroutine[Any, Any, T]]", patience_s: float) -> T:
        """Sends a request and returns the reply; waits up to `patience_s` for a server that restarts."""
        return self._runner.run(self._wait_for(call, patience_s))

    async def _ask(self, call: "Callable[[Client], Awaitable[T]]", *, may_open: bool) -> T:
        from holdfast.client.remote import RemoteJobs

        if self._client is None:
            self._client = await self._direct() or RemoteJobs(await self._transport(may_open=may_open))
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
                if away_since_s is None or now_s - began_s > _AWAY_S:  # it was reachable meanwhile
                    away_since_s = now_s
                    say("holdfast: lost the connection to the server; reconnecting")
                if now_s - away_since_s > patience_s:
                    raise
            await self._close()
            await asyncio.sleep(_AWAY_S / 4)

    async def _direct(self) -> "Client | None":
        """Returns a client of several nodes or of a place without a server, if these were named."""
        if isinstance(self._place, str | Path):
            return None
        if not isinstance(self._place, list):
            return await self._place.client()
        from holdfast.client.discovered_jobs import jobs_at

        return await jobs_at(self._place, self._access, names_jobs=True)

    async def _transport(self, *, may_open: bool) -> "Transport":
        """Connects to the server, or to the socket of a directory, which this command serves itself if it `may_open`.

        A command that waits for a job may not: a restarting server would find the directory locked.
        """
        if isinstance(self._place, str):
            from holdfast.client.wire_transport import tcp_transport

            return tcp_transport(self._place, self._access)
        assert isinstance(self._place, Path)
        import asyncio

        from holdfast.client.endpoints import UnixEndpoint
        from holdfast.client.wire_transport import WireTransport
        from holdfast.journal.errors import DirectoryLockedError

        until_s = time.monotonic() + _STARTING_S
        while True:
            try:
                return await WireTransport.connect(UnixEndpoint(self._place))
            except UnavailableError as error:  # no process serves it, or a killed process left its socket behind
                if not may_open:
                    raise _not_served(self._place.parent) from error
            try:
                self._serving = await _opened(self._place.parent)
            except DirectoryLockedError:  # its owner has just started, recovers, and will listen soon
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
    """Sends the only request of a command and returns the reply."""
    with ServerConnection(connect, may_create=may_create) as connection:
        return connection.ask(call)


async def _opened(folder: Path) -> "ServedLedger":
    """Serves a directory for the duration of a command, like any process that opens it; evicts no job."""
    from holdfast.settings import Settings
    from holdfast.topologies.embedded.served_ledger import ServedLedger

    serving = ServedLedger(forgetting_nothing(Settings(data=str(folder))))
    await serving.open()
    return serving


def forgetting_nothing(settings: "Settings") -> "Settings":
    """Returns the settings of a single command, which evicts no finished job from the directory that it serves.

    A long-running process needs its own limits, because it holds the jobs in memory.
    """
    from msgspec.structs import replace

    return replace(
        settings,
        retain_ms=_EVER_MS,
        retain_failed_ms=_EVER_MS,
        retain_jobs=_ALL_JOBS,
        retain_bytes=ALL_BYTES,
        memory_bytes=ALL_BYTES,
    )


def _not_served(folder: Path) -> UnavailableError:
    message = (
        f"no server is running for {str(folder)!r}; start one with `holdfast up --data {folder}`, or start a worker of"
        " its app with `holdfast worker -A module:app`"
    )
    return UnavailableError(message, reason=_UNREACHABLE)


def check_directory(folder: Path, *, may_create: bool) -> None:
    """Refuses a directory of another topology, and one without jobs unless the command may create it."""
    from holdfast.process.directory_owner import topology_of

    topology = topology_of(folder)
    if topology == "embedded":
        return
    if topology:
        raise _other_topology(folder, topology)
    if not may_create:
        example = (
            f"there are jobs in --connect {found}"
            if (found := nearby_jobs())
            else f"start one with `holdfast up --data {folder}`"
        )
        message = f"no server is running for {str(folder)!r}, and the directory contains no jobs; {example}"
        raise UnavailableError(message, reason=_UNREACHABLE)
    if not folder.exists():
        say_created(folder)


def say_created(folder: Path) -> None:
    """Tells the user that a directory is created: the name may be a host name without its port."""
    shown = str(folder.absolute())
    say(f"holdfast: creating the data directory {shown!r}; to connect to a server, use HOST:PORT")


def _other_topology(folder: Path, topology: str) -> UnavailableError:
    message = (
        f"{str(folder)!r} is a data directory of the topology {topology}, which only its own processes serve; start"
        f" them with `holdfast up --topology {topology} --data {folder}`, and use their address, for example --connect"
        f" {DEFAULT_CONNECT}"
    )
    return UnavailableError(message, reason=_UNREACHABLE)


def _nothing_told() -> UnavailableError:
    """Returns the error for a command without --connect if no server answers at the default address."""
    message = f"no server answers at {DEFAULT_CONNECT}: {say_where()}, or start a server with `holdfast up`"
    return UnavailableError(message, reason=_UNREACHABLE)


def say_where() -> str:
    """Returns advice to name the data directory, with one in the working directory as the example."""
    example = f", for example --connect {found}" if (found := nearby_jobs()) else ""
    return f"use --connect DIRECTORY if the jobs are in a data directory{example}"


def access_to(settings: ClientSettings | WorkerSettings) -> "Access":
    """Returns the token and the TLS files for a server, from its URL and the settings."""
    from holdfast.client.access import access_of

    return access_of(settings.connect, fallback=settings.token)


def place_of(
    target: str, name: str = "--connect", *, may_create: bool = False
) -> "str | list[str] | Path | DirectBackend":
    """Returns the address of a server, those of several nodes, the socket of a directory, or jobs without a server.

    `name` is the option in error messages. The directory must exist unless the caller `may_create` it.
    """
    scheme = scheme_of(target)
    if scheme is not None and scheme.place:
        place: DirectBackend = resolve_name(scheme.place)(target)
        return place
    addresses = addresses_of(target)
    if addresses:
        return addresses if len(addresses) > 1 else addresses[0]
    if "://" not in target and (Path(target).is_dir() or (may_create and _can_be_new(target))):
        from holdfast.server.unix_socket import SOCKET_NAME

        return Path(target) / SOCKET_NAME
    if target.startswith(MEMORY):
        missing = (
            ", whose jobs only the process that holds them can reach; use --connect with the address of its server"
        )
    else:
        missing = "" if ":" in target else ", which is not an existing directory"
    raise InvalidArgumentError(
        f"{name} must be host:port, holdfast://host:port, a comma-separated list of different addresses, a data"
        f" directory, or zk://host:port/path, got {masked(target)!r}{missing}",
        reason="ADDRESS_INVALID",
    )


def _can_be_new(target: str) -> bool:
    """Returns whether a directory of this name may be created: not if it looks like a mistyped address."""
    return not Path(target).exists() and ("/" in target or ":" not in target)
