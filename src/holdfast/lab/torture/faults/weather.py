"""What is bad about a road just now."""

import asyncio
import socket
import struct
from dataclasses import dataclass, field

from holdfast.lab.torture.ports import Harm

#: On, and after no time at all: closing discards what was not sent, and resets.
_NO_LINGERING = struct.pack("ii", 1, 0)


@dataclass(slots=True)
class Weather:
    """Shared by a proxy and all its connections."""

    delay_s: float = 0.0
    is_cutting_answers: bool = False
    is_doubling: bool = False
    is_swallowing_to_server: bool = False
    is_swallowing_to_client: bool = False

    @property
    def is_swallowing(self) -> bool:
        """In any direction."""
        return self.is_swallowing_to_server or self.is_swallowing_to_client


@dataclass(slots=True)
class Traffic:
    """What a proxy has seen, all in all."""

    connections: int = 0
    #: Of them, those that reached the other end twice.
    doubled: int = 0
    #: What either end has said; the others are what became of it.
    bytes_said: int = 0
    bytes_to_server: int = 0
    bytes_to_client: int = 0
    #: Connections that were reset on purpose.
    resets: int = 0
    #: Connections that found nobody at the other end.
    refused: int = 0
    harm: Harm = field(default_factory=Harm)
    bugs: list[BaseException] = field(default_factory=list)


def reset(writer: asyncio.StreamWriter) -> None:
    """Ends a connection with RST; what was not sent is lost."""
    linger(writer.transport)
    writer.transport.abort()


def linger(transport: asyncio.WriteTransport) -> None:
    """Whoever closes it from now on resets it."""
    opened = transport.get_extra_info("socket")
    if opened is not None and opened.fileno() >= 0:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGERING)
