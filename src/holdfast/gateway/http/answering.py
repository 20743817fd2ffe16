"""Whole answers, written in one piece: head and body together, without asking uvicorn for each of them.

uvicorn's own way takes two messages, two writes and a look at every header; most answers are small, and that is most of
what they cost. What it does at the end of an answer is done here too.
"""

from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HEADER_RE, HEADER_VALUE_RE, STATUS_LINE, RequestResponseCycle

from holdfast.gateway.http.asking import Answer, Headers, Send

#: Answers that have no body.
_BARE = (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)
#: Where the protocol leaves the answer that belongs to a request.
CYCLE = "holdfast.cycle"


async def send_answer(scope: dict[str, Any], answer: Answer, more: Headers, send: Send) -> None:
    """Sends it, as soon as the client takes what was sent before."""
    headers = [*more, *answer.headers, (b"cache-control", answer.cache)]
    if answer.status not in _BARE:
        headers += [(b"content-type", answer.type), (b"content-length", b"%d" % len(answer.body))]
    cycle: RequestResponseCycle | None = scope.get(CYCLE)
    if cycle is None or cycle.response_started:
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})
        return
    if cycle.flow.write_paused and not cycle.disconnected:
        await cycle.flow.drain()
    if not cycle.disconnected:
        _write(cycle, answer, headers)


def _write(cycle: RequestResponseCycle, answer: Answer, headers: Headers) -> None:
    for name, value in answer.headers:
        if HEADER_RE.search(name) or HEADER_VALUE_RE.search(value):
            raise RuntimeError(f"no header can be {name!r}: {value!r}")
    parts = [STATUS_LINE[answer.status]]
    for name, value in (*cycle.default_headers, *headers):
        parts += (name, b": ", value, b"\r\n")
    parts.append(b"\r\n" if cycle.keep_alive else b"connection: close\r\n\r\n")
    if cycle.scope["method"] != "HEAD":
        parts.append(answer.body)
    cycle.response_started = cycle.response_complete = True
    cycle.waiting_for_100_continue = False
    cycle.transport.write(b"".join(parts))
    cycle.message_event.set()
    if not cycle.keep_alive:
        cycle.transport.close()
    cycle.on_response()
