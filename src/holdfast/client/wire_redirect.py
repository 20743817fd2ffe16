"""The question to a gRPC port for the port of the wire.

One unary call of gRPC, written by hand, because a client of the wire has no gRPC: HTTP/2 with one request, whose
headers are literals, and the first data of the response. A server of release 0.1 does not know the method.
"""

import re
import socket
from struct import Struct
from typing import NamedTuple

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_PATH = b"/holdfast.v1.WireService/GetPort"
_HEAD = Struct(">BHBBI")
_HEAD_BYTES = 9
_DATA, _HEADERS, _SETTINGS = 0, 1, 4
_END_STREAM, _END_HEADERS = 1, 4
_STREAM = 1
_FRAME_BYTES_MAX, _FRAMES_MAX = 1 << 16, 100
_WAIT_S = 2.0
#: The message in the response: the fields 1 and 2, each a number of up to three bytes, of which all but the last have
#: their highest bit set. A field that is 0 is absent.
_NUMBER = rb"([\x80-\xff]{0,2}[\x00-\x7f])"
_FIELDS = re.compile(rb"(?:\x08" + _NUMBER + rb")?(?:\x10" + _NUMBER + rb")?", re.DOTALL)
_PREFIX_BYTES = 5
_PORT_MAX = 65_535


class NamedPorts(NamedTuple):
    """The ports that a server names: that of the wire, and that of gRPC itself; 0: not named."""

    wire: int = 0
    grpc: int = 0


def named_ports(line: socket.socket, address: str, *, is_secure: bool) -> NamedPorts:
    """Returns the ports that the server names. Raises `OSError` if the connection fails."""
    line.settimeout(_WAIT_S)
    line.sendall(_PREFACE + _frame(_SETTINGS, 0, 0, b"") + _request(address, is_secure=is_secure))
    for _ in range(_FRAMES_MAX):
        head = _received(line, _HEAD_BYTES)
        high, low, kind, flags, stream = _HEAD.unpack(head)
        size = high << 16 | low
        if size > _FRAME_BYTES_MAX:
            return NamedPorts()
        payload = _received(line, size)
        if stream == _STREAM and kind == _DATA and payload:
            return _ports(payload)
        if stream == _STREAM and flags & _END_STREAM and kind in (_DATA, _HEADERS):
            return NamedPorts()
    return NamedPorts()


def _request(address: str, *, is_secure: bool) -> bytes:
    scheme = b"\x87" if is_secure else b"\x86"  # :scheme https, :scheme http, by their numbers in HPACK's table
    headers = b"".join(
        [
            b"\x83",  # :method POST
            scheme,
            b"\x04" + _text(_PATH),
            b"\x01" + _text(address.encode()),
            b"\x0f\x10" + _text(b"application/grpc"),
            b"\x00" + _text(b"te") + _text(b"trailers"),
        ]
    )
    empty = bytes(_PREFIX_BYTES)  # not compressed, and no bytes
    return _frame(_HEADERS, _END_HEADERS, _STREAM, headers) + _frame(_DATA, _END_STREAM, _STREAM, empty)


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return _HEAD.pack(len(payload) >> 16, len(payload) & 0xFFFF, kind, flags, stream) + payload


def _text(text: bytes) -> bytes:
    """Encodes a string of HPACK without compression; an address is shorter than 127 bytes."""
    cut = text[:126]
    return bytes([len(cut)]) + cut


def _received(line: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = line.recv(size - len(data))
        if not part:
            raise ConnectionResetError("the server closed the connection")
        data += part
    return data


def _ports(payload: bytes) -> NamedPorts:
    """Decodes the message behind the prefix of gRPC: two fields with a number each."""
    fields = _FIELDS.match(payload, _PREFIX_BYTES)
    wire, grpc = (_number(field or b"") for field in (fields.groups() if fields else (b"", b"")))
    return NamedPorts(wire, grpc)


def _number(digits: bytes) -> int:
    """Decodes a number of up to 21 bits; 0 if it is no port."""
    value = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(digits))
    return value if value <= _PORT_MAX else 0
