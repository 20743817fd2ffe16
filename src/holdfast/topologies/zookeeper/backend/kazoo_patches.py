"""Changes to methods of kazoo that have no public name: three of one client's connection.

The version of kazoo is pinned, and tests fail if one of the changes stops working.
"""

from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped
from kazoo.protocol.serialization import Connect


def ping_only_if(client: KazooClient, is_alive: Callable[[], bool]) -> None:
    """Stops pinging when the event loop has stalled: `is_alive` is called before each ping, on kazoo's thread.

    Kazoo pings on a thread of its own. Without this change a session would outlive a stalled loop, for example in a
    handler that does not await; the worker would keep its leases, and the workers behind it in a line would wait for
    ever. A session without pings expires.
    """
    handler = client._connection  # noqa: SLF001 - there is no other way, and the version is pinned
    ping = handler._send_ping  # noqa: SLF001

    def pinging(connect_timeout: float) -> None:
        if is_alive():
            ping(connect_timeout)

    handler._send_ping = pinging  # noqa: SLF001


def drop_if_misread(client: KazooClient) -> None:
    """Works around kazoo's "xids do not match" error: the connection is dropped, and kazoo's thread continues.

    A server that has just changed its leader may skip a request and answer the next one. Kazoo ends its thread then,
    and the client never connects again. Here it is a lost connection like any other: the outcome of every open request
    is unknown, and the session continues on another connection.
    """
    handler = client._connection  # noqa: SLF001 - there is no other way, and the version is pinned
    read = handler._read_response  # noqa: SLF001

    def reading(header: Any, buffer: Any, offset: int) -> Any:  # noqa: ANN401 - as the library has it
        try:
            return read(header, buffer, offset)
        except (RuntimeError, LookupError) as error:
            raise ConnectionDropped(f"unexpected reply: {error}") from error

    handler._read_response = reading  # noqa: SLF001


def note_what_is_granted(client: KazooClient, granted: Callable[[int], None]) -> None:
    """Calls `granted` with the session timeout each time a server grants a session; on kazoo's thread.

    Kazoo only logs the granted timeout, and keeps the requested one. The reply to its connect request has it.
    """
    handler = client._connection  # noqa: SLF001 - there is no other way, and the version is pinned
    invoke = handler._invoke  # noqa: SLF001

    def noting(timeout: float, request: object, xid: int | None = None) -> Any:  # noqa: ANN401 - as the library has it
        answer = invoke(timeout, request, xid)
        if isinstance(request, Connect) and answer[0].time_out > 0:
            granted(answer[0].time_out)
        return answer

    handler._invoke = noting  # noqa: SLF001
