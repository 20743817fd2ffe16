"""Encodes responses: head and body in one piece, because most are small and every write costs a system call."""

import re
from collections.abc import Iterable
from http import HTTPStatus

import msgspec

from holdfast.errors import HoldfastError
from holdfast.server.http.problems import PROBLEM_TYPE, headers_of, problem_of, status_of
from holdfast.server.http.request import Headers, HttpResponse

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
#: The end of a chunked response.
LAST_CHUNK = b"0\r\n\r\n"
_ENCODER = msgspec.json.Encoder()
_STATUS = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
#: Statuses without a body.
_BARE = (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)
_CLOSE = b"connection: close\r\n"
#: Characters that would end a header, and begin another.
_UNPRINTABLE = re.compile(b"[\x00-\x08\x0a-\x1f\x7f]")


def lines_of(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Encodes headers; `ValueError` for a value with control characters, which is a bug."""
    for name, value in headers:
        if _UNPRINTABLE.search(value):
            raise ValueError(f"header {name!r} has control characters in its value: {value!r}")
    return b"".join([b"%b: %b\r\n" % header for header in headers])


def bytes_of(answer: HttpResponse, lines: bytes, *, is_head: bool = False, is_last: bool = False) -> bytes:
    """Encodes a response; `lines` are the headers of every response, and `is_head` omits the body."""
    own = lines_of(answer.headers) if answer.headers else b""
    end = _CLOSE if is_last else b""
    if answer.status in _BARE:
        return b"%b%b%bcache-control: %b\r\n%b\r\n" % (_STATUS[answer.status], lines, own, answer.cache, end)
    return b"%b%b%bcache-control: %b\r\ncontent-type: %b\r\ncontent-length: %d\r\n%b\r\n%b" % (
        _STATUS[answer.status],
        lines,
        own,
        answer.cache,
        answer.type,
        len(answer.body),
        end,
        b"" if is_head else answer.body,
    )


def stream_head(headers: Headers, lines: bytes) -> bytes:
    """Encodes the head of a chunked response, after which the connection closes."""
    return b"%b%b%btransfer-encoding: chunked\r\n%b\r\n" % (_STATUS[200], lines, lines_of(headers), _CLOSE)


def problem_answer(error: HoldfastError) -> HttpResponse:
    """Converts an error to a problem response."""
    headers = [(name.encode(), value.encode()) for name, value in headers_of(error).items()]
    return HttpResponse(status_of(error), _ENCODER.encode(problem_of(error)), PROBLEM_TYPE, headers)
