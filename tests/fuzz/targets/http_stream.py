"""Bytes on an HTTP connection: the same responses for any division into pieces, and no server error."""

from holdfast import limits
from tests.fuzz.http_connection import HttpClientConnection, HttpReply, check_statuses
from tests.fuzz.source import Source
from tests.fuzz.world import World, run

EXAMPLES = 200
IS_GUIDED = False

_HEAD = b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
_JOB = b'{"type":"echo","payload":{"a":1}}'
_SIZED = _HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(_JOB), _JOB)
_CHUNKED = _HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n%b\r\n%x\r\n%b\r\n0\r\nX: y\r\n\r\n"
_LIVE = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
_GET = b"GET %b HTTP/1.1\r\nHost: localhost\r\n%b\r\n"
_ERROR = 400


def seeds() -> list[bytes]:
    """Requests of every kind, several on a connection."""
    chunked = _CHUNKED % (_JOB[:5], len(_JOB) - 5, _JOB[5:])
    streams = [
        _LIVE * 3,
        _SIZED + _LIVE,
        chunked + _LIVE,
        _SIZED * 3,
        _GET % (b"/api/v1/jobs?state=QUEUED&limit=5", b"Connection: close\r\n") + _LIVE,
        _GET % (b"/api/v1/jobs/%2e%2e%2f?x=%ff", b""),
        _GET % (b"http://localhost/api/v1/stats", b"Expect: 100-continue\r\n"),
        _SIZED.replace(b"Host", b"Expect: 100-continue\r\nHost"),
        _SIZED.replace(b"Host", b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHost") + _LIVE,
        chunked.replace(b"Host", b"Connection: Upgrade\r\nUpgrade: h2c\r\nHost"),
        b"HEAD /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n" + _GET % (b"/api/v1/events", b""),
        b"OPTIONS /api/v1/jobs HTTP/1.0\r\nHost: localhost\r\n\r\n" + _LIVE,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"CONNECT localhost:1 HTTP/1.1\r\nHost: localhost\r\n\r\n" + _LIVE,
        _LIVE.replace(b"Host", b"X: " + b"y" * limits.HTTP_HEAD_BYTES_MAX + b"\r\nHost"),
        _SIZED.replace(b"Content-Length", b"Content-Length: 1\r\nContent-Length"),
        _HEAD + b"Content-Length: 99999999999999\r\n\r\n{",
        b"\r\n\r\n" + _LIVE + b"\0\xff",
    ]
    return [bytes([7, 200, 0, 31, number]) + stream for number, stream in enumerate(streams)]


def fuzz(data: bytes) -> None:
    """Sends the bytes at once, then in pieces."""
    source = Source(data)
    sizes = [1 + source.below(256) for _ in range(4)]
    haste = source.below(4)
    stream = source.rest()
    run(_fuzz(stream, sizes, haste))


async def _fuzz(stream: bytes, sizes: list[int], haste: int) -> None:
    at_once, mark = await _answers([stream], 0)
    pieces: list[bytes] = []
    at = 0
    while at < len(stream):
        # The rest of a long stream is one piece, which bounds the time of an input.
        size = sizes[len(pieces) % len(sizes)] if len(pieces) < 200 else len(stream)
        pieces.append(stream[at : at + size])
        at += size
    in_pieces, mark_of_pieces = await _answers(pieces, haste)
    assert mark == mark_of_pieces, "more was done, or less, because the bytes came in pieces"
    assert _same(at_once, in_pieces), f"at once {at_once}, in pieces {in_pieces}"


async def _answers(pieces: list[bytes], haste: int) -> tuple[list[HttpReply], int]:
    world = World()
    await world.begin()
    line = HttpClientConnection(world)
    for number, piece in enumerate(pieces):
        await line.send(piece, is_hasty=haste > 0 and number % haste == 0)
    said = await line.end()
    check_statuses(said)
    position = world.mark[0]
    await world.end()
    return said, position


def _same(one: list[HttpReply], other: list[HttpReply]) -> bool:
    """Whether the responses are equal, apart from a last error, which depends on the bytes that had arrived."""
    count = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    rests = one[count:], other[count:]
    return all(len(rest) <= 1 and all(said.status >= _ERROR for said in rest) for rest in rests)
