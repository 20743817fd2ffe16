"""The current condition of a proxied connection."""

import asyncio
import socket
import struct
from dataclasses import dataclass, field

from holdfast_lab.torture.ports import ProxyEffects

#: SO_LINGER on, with a timeout of 0: closing discards unsent data and resets the connection.
_NO_LINGERING = struct.pack("ii", 1, 0)


@dataclass(slots=True)
class LinkCondition:
    """The condition that a proxy and all its connections share."""

    delay_s: float = 0.0
    is_cutting_answers: bool = False
    is_doubling: bool = False
    is_swallowing_to_server: bool = False
    is_swallowing_to_client: bool = False

    @property
    def is_swallowing(self) -> bool:
        """Whether bytes of any direction are dropped."""
        return self.is_swallowing_to_server or self.is_swallowing_to_client


@dataclass(slots=True)
class Traffic:
    """Counters of a proxy."""

    connections: int = 0
    #: Connections that were duplicated.
    doubled: int = 0
    #: Bytes read from both ends; the next two count delivered bytes.
    bytes_said: int = 0
    bytes_to_server: int = 0
    bytes_to_client: int = 0
    #: Connections that the proxy reset on purpose.
    resets: int = 0
    #: Connections for which the target did not listen.
    refused: int = 0
    effects: ProxyEffects = field(default_factory=ProxyEffects)
    bugs: list[BaseException] = field(default_factory=list)


def reset(writer: asyncio.StreamWriter) -> None:
    """Ends a connection with RST; unsent data is lost."""
    linger(writer.transport)
    writer.transport.abort()


def linger(transport: asyncio.WriteTransport) -> None:
    """Makes any later close reset the connection."""
    opened = transport.get_extra_info("socket")
    if opened is not None and opened.fileno() >= 0:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGERING)
