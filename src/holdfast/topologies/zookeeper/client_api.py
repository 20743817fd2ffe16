"""Opens the connections of clients and workers to an ensemble; imports kazoo only when it is needed."""

import importlib.util
from typing import TYPE_CHECKING

from holdfast.errors import FailedPreconditionError
from holdfast.ports import WorkApi
from holdfast.topologies.zookeeper.ensemble_url import Ensemble

if TYPE_CHECKING:
    from holdfast.topologies.zookeeper.backend.connection import EnsembleConnection
    from holdfast.topologies.zookeeper.backend.ensemble_client import EnsembleClient

#: Maximum session timeout of a client, which holds no leases.
_SESSION_MS_MAX = 10_000


async def open_connection(ensemble: Ensemble, *, is_guarded: bool = False) -> "EnsembleConnection":
    """Opens a session for a client or a steward; `UnavailableError` if no server answers."""
    require_library()
    from holdfast.topologies.zookeeper.backend.connection import connect  # noqa: PLC0415 - it needs kazoo

    session_ms, credentials = min(ensemble.lease_ms, _SESSION_MS_MAX), ensemble.credentials()
    return await connect(
        ensemble.hosts, ensemble.root, session_ms=session_ms, credentials=credentials, is_guarded=is_guarded
    )


async def open_client(ensemble: Ensemble) -> "EnsembleClient":
    """Opens a client with all ports over one session, which is replaced by another one if it is lost."""
    connection = await open_connection(ensemble)
    from holdfast.topologies.zookeeper.backend.ensemble_client import EnsembleClient  # noqa: PLC0415 - it needs kazoo

    return EnsembleClient(connection)


def bid_work(ensemble: Ensemble) -> WorkApi:
    """Returns the `WorkApi` of an ensemble; each session is also a candidate for steward."""
    require_library()
    from holdfast.topologies.zookeeper.backend.work_api import BidWork, connecting_with  # noqa: PLC0415 - it needs kazoo

    connecting = connecting_with(ensemble.credentials())
    return BidWork(ensemble.hosts, ensemble.root, session_ms=ensemble.lease_ms, connecting=connecting)


def require_library() -> None:
    """Raises `FailedPreconditionError` if the client library is not installed."""
    if importlib.util.find_spec("kazoo") is None:
        message = "ZooKeeper needs the package kazoo: pip install 'holdfast[zookeeper]'"
        raise FailedPreconditionError(message, reason="KAZOO_MISSING")
