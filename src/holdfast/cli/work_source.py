"""Where the worker of a command gets its jobs from: what was named for it, else where its app keeps them."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from holdfast.cli.connection import access_to, place_of, say_created, say_where
from holdfast.settings import WorkerSettings
from holdfast.settings_sources import Loaded
from holdfast.worker.start_report import Reads

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.cli.connection import Client
    from holdfast.ports import WorkApi
    from holdfast.worker.app_loader import App, ConnectedApp


class WorkSource(NamedTuple):
    """A place with jobs, its name for people, the app that is connected to it, and what ends that connection."""

    api: "WorkApi"
    where: str
    app: "Holdfast | None" = None
    close: Callable[[], None] = lambda: None


def source_of(loaded: Loaded[WorkerSettings], app: "App | None", *, may_serve: bool) -> WorkSource:
    """The place that was named, else that of the app.

    A directory is served by the first process that opens it, and this worker may be that process. The worker beside a
    server may not (`may_serve`): the server has the directory, and must find it free when it starts again.
    """
    from holdfast.worker.app_loader import ConnectedApp

    target = loaded.settings.connect
    own = app if isinstance(app, ConnectedApp) else None
    url = str(getattr(app, "url", ""))
    if own is not None and loaded.origins["connect"] == "default":
        return _own(own, url or loaded.settings.app, is_directory=bool(url) and "://" not in url)
    place = place_of(target, may_create=may_serve)
    if isinstance(place, str):
        from holdfast.client.work_stream import StreamWork

        advice = _advice() if loaded.origins["connect"] == "default" else ""
        return WorkSource(StreamWork(place, access_to(loaded.settings), advice=advice), place)
    if isinstance(place, list):
        from holdfast.client.nodes_link import tell
        from holdfast.client.routed_work import RoutedWork

        return WorkSource(RoutedWork(place, tell, access_to(loaded.settings)), ",".join(place))
    if isinstance(place, Path):
        if own is not None and may_serve and is_same_directory(url, target):
            return _own(own, target, is_directory=True)  # with the settings that the app has for it
        return _directory(place, may_serve=may_serve)
    from holdfast.topologies.zookeeper.client_api import bid_work

    return WorkSource(bid_work(place), place.url)


def _advice() -> str:
    """For a worker that was told no place, if no server answers at the default one."""
    return f"{say_where()}, or -A module:app for the jobs of an app, or start a server with `holdfast up`; trying again"


def _own(app: "ConnectedApp", target: str, *, is_directory: bool) -> WorkSource:
    """The place of the app. A relative directory depends on the folder of this process, so its whole path is shown."""
    from holdfast.app import Holdfast

    if is_directory:
        target = _announced(Path(target))
    return WorkSource(app.work_api(), target, app if isinstance(app, Holdfast) else None)


def _announced(folder: Path) -> str:
    """The whole path of a directory, which the user is told of if it is new."""
    if not folder.exists():
        say_created(folder)
    return str(folder.absolute())


@asynccontextmanager
async def reads_of(source: WorkSource, settings: WorkerSettings) -> AsyncIterator[Reads]:
    """Where the worker reads what its start report needs."""
    app = source.app
    if app is not None:
        yield Reads(app.aqueues, app.aworkers, app.aschedules)
        return
    client = await client_at(settings)
    async with client:
        yield Reads(client.queues, client.workers, client.schedules.all)


async def client_at(settings: WorkerSettings) -> "Client":
    """A client of the place that was named for the worker."""
    from holdfast.client.grpc_transport import GrpcCarrier
    from holdfast.client.remote import RemoteJobs
    from holdfast.client.routed import RoutedJobs
    from holdfast.client.socket_transport import SocketCarrier
    from holdfast.topologies.zookeeper.client_api import BiddingJobs

    place, access = place_of(settings.connect), access_to(settings)
    if isinstance(place, list):
        return RoutedJobs(place, access)
    if isinstance(place, str):
        return RemoteJobs(GrpcCarrier(place, access))
    if isinstance(place, Path):
        return RemoteJobs(await SocketCarrier.connect(place))
    return BiddingJobs(place)


def is_same_directory(url: str, other: str) -> bool:
    """Whether two paths name one directory, which need not exist."""
    return "://" not in url and Path(url).resolve() == Path(other).resolve()


def _directory(socket: Path, *, may_serve: bool) -> WorkSource:
    if not may_serve:
        from holdfast.client.socket_work import SocketWork

        return WorkSource(SocketWork(socket.absolute()), str(socket.parent.absolute()))
    from holdfast.app import Holdfast

    where, opened = _announced(socket.parent), Holdfast(socket.parent)
    return WorkSource(opened.work_api(), where, opened, opened.close)
