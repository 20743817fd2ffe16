"""Where the worker of a command gets its jobs from: what was named for it, else where its app keeps them."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from holdfast.cli.connecting import access_to, place_of, say_created
from holdfast.settings import WorkerSettings
from holdfast.settings_sources import Loaded
from holdfast.worker.start_report import Reads

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.backends.ports import WorkApi
    from holdfast.cli.connecting import Client
    from holdfast.worker.loading import App


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
    from holdfast.worker.loading import ConnectedApp

    target = loaded.settings.connect
    own = app if isinstance(app, ConnectedApp) else None
    url = str(getattr(app, "url", ""))
    if own is not None and loaded.origins["connect"] == "default":
        return WorkSource(own.work_api(), url or loaded.settings.app, _connected(own))
    place = place_of(target, may_create=may_serve)
    if isinstance(place, str):
        from holdfast.client.work_stream import StreamWork

        return WorkSource(StreamWork(place, access_to(loaded.settings)), place)
    if isinstance(place, list):
        from holdfast.client.routed_work import RoutedWork
        from holdfast.topology.routed import tell

        return WorkSource(RoutedWork(place, tell, access_to(loaded.settings)), ",".join(place))
    if isinstance(place, Path):
        if own is not None and may_serve and is_same_directory(url, target):
            return WorkSource(own.work_api(), target, _connected(own))  # with the settings that the app has for it
        return _directory(place, target, may_serve=may_serve)
    from holdfast.topology.bidding_jobs import bid_work

    return WorkSource(bid_work(place), place.url)


def _connected(app: "App") -> "Holdfast | None":
    from holdfast.app import Holdfast

    return app if isinstance(app, Holdfast) else None


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
    from holdfast.client.grpc_carrier import GrpcCarrier
    from holdfast.client.remote import RemoteJobs
    from holdfast.client.routed import RoutedJobs
    from holdfast.client.socket_carrier import SocketCarrier
    from holdfast.topology.bidding_jobs import BiddingJobs

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


def _directory(socket: Path, target: str, *, may_serve: bool) -> WorkSource:
    if not may_serve:
        from holdfast.client.socket_work import SocketWork

        return WorkSource(SocketWork(socket.absolute()), target)
    from holdfast.app import Holdfast

    if not socket.parent.exists():
        say_created(socket.parent)
    opened = Holdfast(socket.parent)
    return WorkSource(opened.work_api(), target, opened, opened.close)
