"""Pings for a loop that lives.

The library pings on a thread of its own, so a session would outlive a loop that stands still, say in a handler that
does not await: what its worker holds would be nobody else's, and whoever is behind it in a line would wait for ever.
A ping is the loop's word that it lives. It has no public name in the library, whose version is pinned; a test fails if
this stops being true.
"""

from collections.abc import Callable

from kazoo.client import KazooClient


def ping_only_if(client: KazooClient, is_alive: Callable[[], bool]) -> None:
    """Asks before each ping, on the library's thread; a session without any ends in its time."""
    handler = client._connection  # noqa: SLF001 - there is no other way, and the version is pinned
    ping = handler._send_ping  # noqa: SLF001

    def pinging(connect_timeout: float) -> None:
        if is_alive():
            ping(connect_timeout)

    handler._send_ping = pinging  # noqa: SLF001
