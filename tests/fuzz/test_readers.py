"""Decoders of external data without a target of their own: invalid UTF-8 is handled like any other invalid input."""

import asyncio
from pathlib import Path
from typing import cast

import msgspec
import pytest

from holdfast.errors import FailedPreconditionError, InvalidArgumentError
from holdfast.ledger.node_identity import IDENTITY_NAME, identity_of
from holdfast.process.supervised_process import ready_line
from holdfast.sdk.options import JobOptions, changed
from holdfast.server.auth.permissions import Scope
from holdfast.server.http.request import AdmittedRequest, Head
from holdfast.server.http.routing import Handler, Route
from holdfast.topologies.microservices.services.environment import ROLES, read
from holdfast.topologies.pipeline.roles.role_health import RoleHealth
from holdfast.topologies.pipeline.roles.role_server import MSGPACK_TYPE, RoleApplication
from holdfast.worker.executors.child_process import ChildProcess
from holdfast.worker.executors.frames import LENGTH_BYTES

#: A MessagePack map with one value, which is not valid UTF-8.
NONSENSE = b"\x81\xa4type\xa1\xff"


class Body(msgspec.Struct):
    """The body of a request to a role."""

    type: str


async def test_child_that_talks_nonsense_has_said_its_last_word() -> None:
    """The worker reads the invalid message as the child's end, so that it ends the child and frees the slot."""
    child = ChildProcess("shop:app", 0)
    child._reader = asyncio.StreamReader()
    child._reader.feed_data(len(NONSENSE).to_bytes(LENGTH_BYTES, "big") + NONSENSE)
    assert await child.receive() is None


async def test_role_refuses_a_body_that_is_no_text() -> None:
    """A role refuses a body with invalid UTF-8 as INVALID_ARGUMENT."""
    handler = cast("Handler", None)
    route = Route(method="POST", path="/x", scope=Scope.SUBMIT, handler=handler, summary="", body=Body)
    asked = AdmittedRequest(Head("POST", "/x", [(b"content-type", MSGPACK_TYPE)], ""), route, {})
    asked.body = NONSENSE
    with pytest.raises(InvalidArgumentError, match="MessagePack of the route's type"):
        await RoleApplication([], RoleHealth("queue"), "127.0.0.1").read(asked)


def test_identity_that_is_no_text_is_explained(tmp_path: Path) -> None:
    """The error for an identity file with invalid UTF-8 names the file."""
    (tmp_path / IDENTITY_NAME).write_bytes(b'{"index":0,"nodes":"\xff"}')
    with pytest.raises(FailedPreconditionError, match=IDENTITY_NAME):
        identity_of(tmp_path)


@pytest.mark.parametrize("text", [b'{"event":"\xff"}', b"[" * 100_000, b"ready"])
def test_line_of_a_program_that_is_no_line_says_nothing(text: bytes) -> None:
    """A line that is not a valid ready line is ignored, because programs may print anything."""
    assert ready_line(text) is None


@pytest.mark.parametrize("role", ROLES)
def test_variable_of_a_service_that_is_no_text_is_named(role: str) -> None:
    """A variable with invalid UTF-8, which Python reads as a lone surrogate, is reported like any other wrong value."""
    names = [field.encode_name for field in msgspec.structs.fields(ROLES[role])]
    with pytest.raises(InvalidArgumentError) as refused:
        read(role, dict.fromkeys(names, "\udcff"))
    assert all(" must be " in line for line in refused.value.message.splitlines())


@pytest.mark.parametrize("name", ["priority", "timeout_s", "at", "labels"])
def test_option_that_is_no_text_is_refused(name: str) -> None:
    """A lone surrogate is refused as a number, a time and an object."""
    with pytest.raises(InvalidArgumentError):
        changed(JobOptions(), {name: "\ud800"})
