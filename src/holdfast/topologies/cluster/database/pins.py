"""Pins of readers: rows that expire, so that a reader that has ended without a word keeps no segment for ever."""

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.postgres.statements import statements
from holdfast.topologies.cluster.database.address import DatabaseAddress
from holdfast.topologies.cluster.database.session import DatabaseSession

_SQL = statements(__package__, "snapshots")

#: Long enough for an outage of the database, and renewed several times in between.
PIN_MS = 120_000
_RENEWALS = 4


@contextmanager
def pinned(address: DatabaseAddress, shard: int, position: int, *, lasts_ms: int = PIN_MS) -> Iterator[None]:
    """Keeps the segments with this position and later ones until the block ends; a thread renews the pin."""
    session, is_over = DatabaseSession(address), threading.Event()
    pin: dict[str, Any] = {"pin": uuid.uuid4(), "shard": shard, "position": position, "lasts_ms": lasts_ms}
    session.change(_SQL["pin"], pin)
    arguments = {"pin": pin["pin"], "lasts_ms": lasts_ms}
    thread = threading.Thread(target=_renew, args=(session, arguments, is_over), name="holdfast-pin", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        with suppress(HoldfastError):  # it expires
            session.change(_SQL["unpin"], {"pin": pin["pin"]})
        session.close()


def _renew(session: DatabaseSession, arguments: dict[str, Any], is_over: threading.Event) -> None:
    while not is_over.wait(arguments["lasts_ms"] / 1_000 / _RENEWALS):
        with suppress(HoldfastError):  # the next renewal may succeed
            session.change(_SQL["renew_pin"], arguments)
