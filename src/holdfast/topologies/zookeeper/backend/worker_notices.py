"""What others have to say to a worker: that a job of its should stop, and that a newer session has taken its place.

Invariant: a look sets the watch for the next one, and a lost connection rings, so nothing that is said is missed.
"""

from collections.abc import Callable

from holdfast.errors import UnavailableError
from holdfast.topologies.zookeeper.backend.connection import EnsembleConnection
from holdfast.topologies.zookeeper.backend.kazoo_bridge import Bell
from holdfast.topologies.zookeeper.backend.transactions import Check, Delete


async def hear_cancels(
    connection: EnsembleConnection, worker: str, fence: Check, heard: Callable[[list[str]], None]
) -> None:
    """For ever: whoever asks leaves a word with the id of the job, and one watch hears them all.

    A word is struck out once it is heard, unless a newer session of this worker has come: then it is for that one.
    """
    path, bell = connection.paths.asked_of(worker), Bell()
    while True:
        bell.clear()
        try:
            names = await connection.children(path, bell) or []
        except UnavailableError:
            await connection.back()
            continue
        heard(names)
        for name in names:
            connection.transact([fence, Delete(f"{path}/{name}")])
        await bell.wait()


async def until_superseded(connection: EnsembleConnection, worker: str, session_id: int) -> None:
    """Watches the worker's own node: a newer session of this worker takes it away."""
    path, bell = connection.paths.worker(worker), Bell()
    while True:
        bell.clear()
        try:
            stat = await connection.exists(path, bell)
        except UnavailableError:
            await connection.back()
            continue
        if stat is None or stat.owner != session_id:
            return
        await bell.wait()
