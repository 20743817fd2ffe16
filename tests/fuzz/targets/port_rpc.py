"""Calls of the pipeline's ports over HTTP: any bytes are answered, or refused with a known code and without effect."""

import msgspec

from holdfast.core.model import Template
from holdfast.errors import Code, HoldfastError, UnavailableError
from holdfast.ports import JobDraft
from holdfast.topologies.pipeline.backend.port_rpc import METHODS, PREFIX, answer_of, question, routes
from tests.fuzz.depth import deepened
from tests.fuzz.source import Source
from tests.fuzz.world import World, run, settle

EXAMPLES = 200
IS_GUIDED = False

_NAMES = sorted(METHODS)


def seeds() -> list[bytes]:
    """Each method, with arguments that fit several of them."""
    given = [
        question(),
        question("0123456789abcdef"),
        question("default", 2, "why"),
        question([Template("echo")], [JobDraft(payload=b"{}"), JobDraft(template=0)]),
        question([1, 2], 0, 50, True),
        question(["a", "b", None, 1, {"a": "b"}], "cursor", 10),
        question("0123456789abcdef", 0, 1),
        question("nightly", True),
        deepened(question("0123456789abcdef", 0, 1, None)),
    ]
    return [bytes([number]) + body for number in range(len(_NAMES)) for body in given]


def fuzz(data: bytes) -> None:
    """Calls one method with the bytes, and reads the same bytes as its response."""
    source = Source(data)
    name = source.pick(_NAMES)
    body = source.rest()
    try:
        answer_of(METHODS[name], body)
    except UnavailableError as error:
        assert error.reason == "ANSWER_INVALID"
    run(_ask(name, body))


async def _ask(name: str, body: bytes) -> None:
    world = World()
    await world.begin()
    backend = world.backend
    assert backend.admin is not None
    assert backend.schedules is not None
    handle = routes(backend.jobs, backend.admin, backend.schedules, backend.history)[f"{PREFIX}{name}"]
    before = world.mark
    try:
        answer = await handle(body)
    except HoldfastError as error:
        assert error.code is not Code.INTERNAL
        assert world.mark == before, f"{name} was refused and left a trace"
    else:
        msgspec.msgpack.decode(answer)
        answer_of(METHODS[name], answer)
    await settle()
    await world.end()
