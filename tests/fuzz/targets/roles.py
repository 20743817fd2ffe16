"""Requests between roles of the pipeline: any body is answered or refused, and affects no other request.

A queue process, an exchange that routes to it and a coordinator receive requests one after the other, in JSON and in
MessagePack. After each request the state of all three can be read, the exchange passes on nothing that its queue
process refuses, and the database can hold the data that the coordinator stores.
"""

import json
import random
from typing import Any

import msgspec

from holdfast.server.http.request import JSON_TYPE
from holdfast.server.http.routing import Route
from holdfast.topologies.pipeline.backend.store import Ticket
from holdfast.topologies.pipeline.roles.role_server import MSGPACK_TYPE
from holdfast.topologies.pipeline.roles.ticket_store import Lane
from tests.fuzz.depth import DEEP, DEEP_JSON
from tests.fuzz.roles_in_process import Roles
from tests.fuzz.source import Source
from tests.fuzz.world import run

EXAMPLES = 80
IS_GUIDED = False

_REQUESTS_MAX = 5
_FAULT = 500
_BITS_64 = 1 << 64
#: Large numbers that JSON can express.
_LARGE = (_BITS_64 // 2, _BITS_64 - 1, _BITS_64, 10**400, -(10**400))
_TICKET = {"job_id": "a", "route": "echo", "queue": "default", "priority": 5, "number": 1, "deliveries": 1}
#: A ticket with an unknown field that is nested very deeply.
_DEEP = b"\x81\xa4jobs\x91\x81\xa1x" + DEEP
_DEEP_JSON = b'{"jobs":[{"x":' + DEEP_JSON
#: Valid values by field name.
_SENSE: dict[str, tuple[object, ...]] = {
    "jobs": ([_TICKET], [_TICKET, {**_TICKET, "job_id": "b", "priority": 9}]),
    "job_id": ("a", "b", "c"),
    "job_ids": (["a"], ["b", "c"]),
    **dict.fromkeys(("type", "route"), ("echo", "sleep")),
    "queue": ("default", "other"),
    **dict.fromkeys(("types", "queues"), ([], ["echo"], ["default"])),
    "lanes": ([["default", "echo"]], [["other", "sleep"], ["default", "echo"]]),
    "worker_id": ("w1", "w2"),
    "session": ("s1", "s2"),
    **dict.fromkeys(("count", "slots"), (1, 4)),
    "wait_ms": (0, 20_000),
    **dict.fromkeys(("keep_ms", "visibility_ms"), (1, 30_000)),
}


#: Fields that are always set, because most requests need them.
_NEEDED = ("worker_id", "job_id")


def seeds() -> list[bytes]:
    """Each route several times, and some in a row."""
    rng = random.Random(0)
    single = [bytes([0, number]) + rng.randbytes(60) for number in range(12) for _ in range(4)]
    return single + [b"\4" + rng.randbytes(250) for _ in range(20)]


def fuzz(data: bytes) -> None:
    """Sends one request after the other."""
    run(_fuzz(Source(data)))


async def _fuzz(source: Source) -> None:
    roles = Roles()
    for _ in range(1 + source.below(_REQUESTS_MAX)):
        door, route = source.pick(roles.taking)
        is_packed = source.below(2) == 1
        body = _body(source, route, is_packed=is_packed)
        answer = await door.ask("POST", route.path, body, MSGPACK_TYPE if is_packed else JSON_TYPE)
        assert answer.status < _FAULT, f"{route.path}: {answer}"
        await roles.check()
    roles.end()


def _body(source: Source, route: Route, *, is_packed: bool) -> bytes:
    match source.below(16):
        case 0 | 1:
            return source.take(source.below(64))
        case 2:
            return _DEEP if is_packed else _DEEP_JSON
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(route.body)}
    content: dict[str, Any] = {name: source.pick(_SENSE[name]) for name in _NEEDED if name in fields}
    for _ in range(1 + source.below(4)):
        name = source.pick(sorted(fields)) if source.below(12) else _text(source)
        is_sense = name in _SENSE and source.below(2)
        content[name] = source.pick(_SENSE[name]) if is_sense else _said(source, fields.get(name, Any))
    return msgspec.msgpack.encode(_packable(content)) if is_packed else json.dumps(content).encode()


def _said(source: Source, kind: Any) -> Any:  # noqa: ANN401 - any type, and any value
    """An odd value, mostly of this type."""
    if source.is_one_in(8):
        return source.pick((None, True, 1.5, 7, "", [], {}, [None]))
    words = [_text(source) for _ in range(1 + source.below(2))]
    if kind is str:
        return words[0]
    if kind == list[str]:
        return words
    if kind == list[Lane]:
        return [[word, _text(source)] for word in words]
    if kind == list[Ticket]:
        name = source.pick(sorted(_TICKET))
        return [{**_TICKET, name: words[0] if isinstance(_TICKET[name], str) else _number(source)}]
    return source.below(2) == 1 if kind is bool else _number(source)


def _number(source: Source) -> int:
    return source.integer() if source.below(4) else source.pick(_LARGE)


def _text(source: Source) -> str:
    return source.text().encode("utf-8", "replace").decode()


def _packable(value: Any) -> Any:  # noqa: ANN401 - anything
    """The value with its numbers limited to those of MessagePack."""
    if isinstance(value, dict):
        return {name: _packable(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_packable(one) for one in value]
    return min(max(value, -_BITS_64 // 2), _BITS_64 - 1) if isinstance(value, int) else value
