"""Where the worker of a command gets its jobs from."""

from pathlib import Path

from holdfast.cli.work_source import source_of
from holdfast.client.socket_work import SocketWork
from holdfast.settings import WorkerSettings
from holdfast.settings_sources import Loaded


def test_worker_beside_a_server_never_serves_its_directory(tmp_path: Path) -> None:
    """The worker of `holdfast up` only connects: a server that starts again must find its directory free."""
    loaded = Loaded(WorkerSettings(connect=str(tmp_path)), {"connect": "flag --connect"})
    beside = source_of(loaded, None, may_serve=False)
    alone = source_of(loaded, None, may_serve=True)
    assert (type(beside.api), type(alone.api) is SocketWork) == (SocketWork, False)
    alone.close()
