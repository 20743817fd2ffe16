"""The errors of an HTTP server that cannot listen."""

import errno
import os
import socket
from typing import Any

import pytest

from holdfast.errors import UnavailableError
from holdfast.server.http import server as http_server
from holdfast.server.http.server import HttpServer


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE)), "already in use; choose another port with --port"),
        (OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL)), "; set --host to an address of this machine"),
        (socket.gaierror(socket.EAI_NONAME, "unknown"), "unknown; set --host to an address of this machine"),
    ],
    ids=["taken", "elsewhere", "no-name"],
)
async def test_advice_is_about_the_port_or_the_address(
    monkeypatch: pytest.MonkeyPatch, error: OSError, advice: str
) -> None:
    """The error advises another port if this one is taken, and another address if it is not one of the machine."""

    def refused(*_: object) -> None:
        raise error

    monkeypatch.setattr(http_server, "_bound", refused)
    nothing: Any = None
    with pytest.raises(UnavailableError, match="cannot serve HTTP on somewhere:50051: ") as caught:
        await HttpServer(nothing, advice="choose another port with --port").start("somewhere", 50051)
    assert caught.value.message.endswith(advice)
