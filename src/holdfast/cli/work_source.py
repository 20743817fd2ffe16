"""The source of the jobs of `holdfast worker`: the place that was named, else that of its app."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from holdfast.cli.connection import access_to, place_of, say_created, say_where
from holdfast.settings import WorkerSettings
from holdfast.settings_sources import LoadedSettings
from holdfast.worker.start_report import BackendReads

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.client.link import Client
    from holdfast.ports import WorkApi
    from holdfast.worker.app_loader import App, ConnectedApp


class WorkSource(NamedTuple):
    """A source of jobs, its name in messages, the app that is connected to it, and a function to disconnect."""

    api: "WorkApi"
    where: str
    app: "Holdfast | None" = None
    close: Callable[[], None] = lambda: None


def source_of(loaded: LoadedSettings[WorkerSettings], app: "App | None", *, may_serve: bool) -> WorkSource:
    """Returns the place that was named, else that of the app.

    The first process that opens a directory serves it, and this worker may be that process. The worker of `holdfast up`
    may not (`may_serve`): its server must find the directory unlocked after a restart.
    """
    from holdfast.worker.app_loader import ConnectedApp

    target = loaded.settings.connect
    own = app if isinstance(app, ConnectedApp) else None
    url = str(getattr(app, "url", ""))
    if own is not None and loaded.origins["connect"] == "default":
        return _own(own, url or loaded.settings.app, is_directory=bool(url) and "://" not in url)
    place = place_of(target, may_create=may_serve)
    if isinstance(place, str | list):
        from holdfast.client.discovered_work import DiscoveredWork
        from holdfast.client.nodes_link import tell

        addresses = [place] if isinstance(place, str) else place
        advice = _advice() if loaded.origins["connect"] == "default" else ""
        work = DiscoveredWork(addresses, tell, access_to(loaded.settings), advice=advice)
        return WorkSource(work, ",".join(addresses))
    if isinstance(place, Path):
        if own is not None and may_serve and is_same_directory(url, target):
            return _own(own, target, is_directory=True)  # keeps the settings of the app
        return _directory(place, may_serve=may_serve)
    return WorkSource(place.work(), place.url)


def _advice() -> str:
    """Returns advice for a worker without --connect if no server answers at the default address."""
    return f"{say_where()}, or -A module:app for the jobs of an app, or start a server with `holdfast up`; retrying"


def _own(app: "ConnectedApp", target: str, *, is_directory: bool) -> WorkSource:
    """Returns the place of the app, with the absolute path of a directory, because relative ones are ambiguous."""
    from holdfast.app import Holdfast

    if is_directory:
        target = _announced(Path(target))
    return WorkSource(app.work_api(), target, app if isinstance(app, Holdfast) else None)


def _announced(folder: Path) -> str:
    """Returns the absolute path of a directory; tells the user if it is new."""
    if not folder.exists():
        say_created(folder)
    return str(folder.absolute())


@asynccontextmanager
async def reads_of(source: WorkSource, settings: WorkerSettings) -> AsyncIterator[BackendReads]:
    """Yields the calls by which the worker reads the data of its start report."""
    app = source.app
    if app is not None:
        yield BackendReads(app.aqueues, app.aworkers, app.aschedules)
        return
    client = await client_at(settings)
    async with client:
        yield BackendReads(client.queues, client.workers, client.schedules.all)


async def client_at(settings: WorkerSettings) -> "Client":
    """Returns a client of the place that was named for the worker."""
    from holdfast.client.discovered_jobs import jobs_at
    from holdfast.client.endpoints import UnixEndpoint
    from holdfast.client.remote import RemoteJobs
    from holdfast.client.wire_transport import WireTransport, tcp_transport

    place, access = place_of(settings.connect), access_to(settings)
    if isinstance(place, list):
        return await jobs_at(place, access)
    if isinstance(place, str):
        return RemoteJobs(tcp_transport(place, access))
    if isinstance(place, Path):
        return RemoteJobs(await WireTransport.connect(UnixEndpoint(place)))
    return await place.client()


def is_same_directory(url: str, other: str) -> bool:
    """Returns whether two paths name the same directory, which need not exist."""
    return "://" not in url and Path(url).resolve() == Path(other).resolve()


def _directory(socket: Path, *, may_serve: bool) -> WorkSource:
    if not may_serve:
        from holdfast.client.endpoints import UnixEndpoint
        from holdfast.client.wire_work import WireWork

        return WorkSource(WireWork(UnixEndpoint(socket.absolute())), str(socket.parent.absolute()))
    from holdfast.app import Holdfast

    where, opened = _announced(socket.parent), Holdfast(socket.parent)
    return WorkSource(opened.work_api(), where, opened, opened.close)
