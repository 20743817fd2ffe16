"""Bodies of every route that takes one: the status is one that the OpenAPI document names, and a refusal has no effect.

An input chooses a route and its body: known and unknown names, and values of any kind, valid or malformed.
"""

import json
import random
from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.server.http.openapi import document
from holdfast.server.http.routing import Route
from tests.fuzz.http_connection import HttpClientConnection, check_statuses
from tests.fuzz.source import Source
from tests.fuzz.world import World, run

EXAMPLES = 250
IS_GUIDED = False

_VALUES = (
    *(
        "null",
        "true",
        "false",
        "0",
        "-1",
        "1.5",
        "1e999",
        "-0",
        "NaN",
        "-Infinity",
        '""',
        '"\\ud800"',
        '"a\\u0000b"',
        "[]",
    ),
    *(
        "{}",
        "1" * 4_301,
        "9223372036854775808",
        "18446744073709551616",
        '"2040-01-31T09:00:00Z"',
        '"2040-01-31T09:00:00"',
    ),
    *(
        '"0 9 * * *"',
        '"Europe/Paris"',
        '"9999-12-31T23:59:59.999Z"',
        '"0001-01-01T00:00:00+23:59"',
        "1e-300",
        "[[[[]]]]",
    ),
    *(
        "[" * 80 + "]" * 80,
        '{"a":1,"a":2}',
        "3",
        "60",
        "0.001",
        '{"kind":"fixed","base_s":1}',
        '[{"type":"echo"}]',
        "00",
    ),
    *(
        '"default"',
        '"echo"',
        '"pause"',
        '"paused"',
        '"open"',
        '"drain"',
        '"skip"',
        '"latest"',
        "100",
        "31536000",
        "31536001",
    ),
)
#: Valid values by name.
_SENSE = {
    "after": ('"2030-01-01T00:00:00Z"',),
    "at": ('"2040-01-31T09:00:00Z"',),
    "backoff": ('{"kind":"fixed","base_s":1}', '{"kind":"exponential","base_s":2,"max_s":60}'),
    "catch_up": ('"none"', '"latest"', '"all"'),
    "catch_up_window_s": ("3600",),
    "count": ("3", "100", "101"),
    "cron": ('"0 9 * * *"', '"*/5 2 * * 1-5"'),
    "cron_expr": ('"0 9 * * *"', '"5 4"'),
    "delay_s": ("60", "0.5", "31536000", "31536001"),
    "every_s": ("10", "0.001"),
    "headers": ('{"a":"b"}',),
    "jitter_s": ("1",),
    "jobs": ('[{"type":"echo"},{"type":"echo","delay_s":1}]', '[{"type":"echo"},{"type":"e cho"}]'),
    "job_type": ('"echo"',),
    "labels": ('{"a":"b"}', "{}"),
    "max_attempts": ("3", "100", "101"),
    "max_losses": ("3",),
    "name": ('"nightly"',),
    "not_before": ('"2040-01-31T09:00:00Z"', '"1999-01-31T09:00:00+05:30"'),
    "overlap": ('"allow"', '"skip"', '"cancel_running"'),
    "payload": ('{"a":[1,2.5,null]}', '"text"', "null"),
    "priority": ("5", "9", "10", '"high"'),
    "queue": ('"default"', '"other"'),
    "reason": ('"why"', '""'),
    "request_id": ('"key"',),
    "timeout_s": ("30",),
    "timezone": ('"UTC"', '"Europe/Paris"'),
    "type": ('"echo"',),
    "unique_key": ('"u"',),
}
_PARAMS = ("default", "nightly", "echo", "..", "%00", "%ff", "a b", "x" * 129, "0", "*", "é")
_ERROR = 400


class _Chosen(msgspec.Struct):
    """Routes that take a body, with the names in their bodies, and their documented statuses."""

    routes: list[Route]
    names: list[list[str]]
    statuses: list[set[int]]


def seeds() -> list[bytes]:
    """Each route, several times."""
    rng = random.Random(0)
    return [bytes([number]) + rng.randbytes(60) for number in range(24) for _ in range(3)]


def fuzz(data: bytes) -> None:
    """Sends one body after another."""
    run(_fuzz(Source(data)))


async def _fuzz(source: Source) -> None:
    world = World()
    await world.begin()
    job_ids: list[str] = []
    for _ in range(3):
        line = HttpClientConnection(world)
        chosen = _chosen(line.application.router.routes)
        number = source.below(len(chosen.routes))
        route = chosen.routes[number]
        body = _body(source, chosen.names[number], 0).encode("utf-8", "surrogatepass")
        path = _path(source, route.path, job_ids)
        head = f"{route.method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        before = world.mark
        await line.send(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        said = await line.end()
        check_statuses(said)
        assert len(said) == 1, f"{len(said)} answers to one request"
        status = said[0].status
        assert world.mark == before or status < _ERROR, f"{route.path} was refused and left a trace"
        assert status in chosen.statuses[number], f"{route.method} {route.path} does not say that it answers {said[0]}"
    await world.end()


_known: list[_Chosen] = []


def _chosen(routes: Sequence[Route]) -> _Chosen:
    """The routes with a body, computed once, because they are the same for every input."""
    if not _known:
        described = json.loads(document(routes, "0"))["paths"]
        taking = [route for route in routes if route.body is not None]
        statuses = [_statuses(route, described) for route in taking]
        _known.append(_Chosen(taking, [_names(route) for route in taking], statuses))
    return _known[0]


def _statuses(route: Route, described: dict[str, Any]) -> set[int]:
    row = described.get(route.path, {}).get(route.method.lower())
    if row is None:  # a short form, which is not in the document
        return {*route.answers, *route.problems, 200, 201, 202, 400, 403, 404, 409, 413, 415, 422, 429}
    return {int(status) for status in row["responses"]}


def _names(route: Route) -> list[str]:
    kinds = [route.body, *route.bodies_by_name.values()]
    structs = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, msgspec.Struct)]
    return sorted({field.encode_name for kind in structs for field in msgspec.structs.fields(kind)}) or ["type"]


def _path(source: Source, path: str, job_ids: list[str]) -> str:
    parts = [source.pick([*job_ids, *_PARAMS]) if part.startswith("{") else part for part in path.split("/")]
    return "/".join(parts).replace(" ", "%20").replace("é", "%C3%A9")


def _body(source: Source, names: list[str], depth: int) -> str:
    """JSON, or nearly."""
    if source.is_one_in(12):
        return source.take(source.below(40)).decode("utf-8", "replace")
    chosen = [source.pick(names) if source.below(12) else source.text() for _ in range(source.below(5))]
    if "type" in names and source.below(8):
        chosen.append("type")
    if source.below(12):
        chosen = list(dict.fromkeys(chosen))  # each once
    return "{" + ",".join(f"{json.dumps(name)}:{_said(source, name, names, depth)}" for name in chosen) + "}"


def _said(source: Source, name: str, names: list[str], depth: int) -> str:
    if name in _SENSE and source.below(4):
        return source.pick(_SENSE[name])
    return _value(source, names, depth)


def _value(source: Source, names: list[str], depth: int) -> str:
    match source.below(8):
        case 0 | 1 | 2:
            return source.pick(_VALUES)
        case 3:
            return str(source.integer())
        case 4 | 5:
            return json.dumps(source.text())
        case 6 if depth < 4:
            return "[" + ",".join(_value(source, names, depth + 1) for _ in range(source.below(4))) + "]"
        case 7 if depth < 4:
            return _body(source, names, depth + 1)
        case _:
            return str(source.integer() / 1_000)
