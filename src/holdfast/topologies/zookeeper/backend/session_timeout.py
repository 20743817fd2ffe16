"""How long a session the servers grant, which the client library knows and tells nobody.

It has no public name for it: its log has the number in a sentence, its client only what was asked for. So the one
request of the library that is answered with it is looked at. The library's version is pinned, and a test fails if
this stops being true.
"""

from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient
from kazoo.protocol.serialization import Connect


def note_what_is_granted(client: KazooClient, granted: Callable[[int], None]) -> None:
    """Tells each time that a server has granted a session; on the library's thread."""
    handler = client._connection  # noqa: SLF001 - there is no other way, and the version is pinned
    invoke = handler._invoke  # noqa: SLF001

    def noting(timeout: float, request: object, xid: int | None = None) -> Any:  # noqa: ANN401 - as the library has it
        answer = invoke(timeout, request, xid)
        if isinstance(request, Connect) and answer[0].time_out > 0:
            granted(answer[0].time_out)
        return answer

    handler._invoke = noting  # noqa: SLF001
