"""Where the worker of a command gets its jobs from: what was named for it, else where its app keeps them."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from holdfast.cli.connecting import access_to, place_of, say_created
from holdfast.settings import WorkerSettings
from holdfast.settings_sources import Loaded

if TYPE_CHECKING:
    from holdfast.backends.ports import WorkApi
    from holdfast.worker.loading import App


class WorkSource(NamedTuple):
    """A place with jobs, its name for people, and what ends the connection to it."""

    api: "WorkApi"
    where: str
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
        return WorkSource(own.work_api(), url or loaded.settings.app)
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
            return WorkSource(own.work_api(), target)  # with the settings that the app has for it
        return _directory(place, target, may_serve=may_serve)
    from holdfast.topology.bidding_jobs import bid_work

    return WorkSource(bid_work(place), place.url)


def is_same_directory(url: str, other: str) -> bool:
    """Whether two paths name one directory, which need not exist."""
    return "://" not in url and Path(url).resolve() == Path(other).resolve()


def _directory(socket: Path, target: str, *, may_serve: bool) -> WorkSource:
    if not may_serve:
        from holdfast.client.socket_work import SocketWork

        return WorkSource(SocketWork(socket.absolute()), target)
    from holdfast.sdk.connection import Connection
    from holdfast.sdk.opening import opener
    from holdfast.sdk.worker import AppWork

    if not socket.parent.exists():
        say_created(socket.parent)
    connection = Connection(opener(str(socket.parent), {}, None))
    return WorkSource(AppWork(connection), target, connection.close)
