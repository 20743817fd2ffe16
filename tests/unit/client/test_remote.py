"""The calls of a remote client: deadlines, retries and validation."""

import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeVar, cast
from uuid import uuid4

import pytest

from holdfast import limits
from holdfast.client.remote import RemoteJobs
from holdfast.client.retry_policy import RetryPolicy
from holdfast.client.wire_transport import encoded_call
from holdfast.core.model import Extra, Template
from holdfast.errors import Code, InvalidArgumentError, UnavailableError
from holdfast.ports import JobDraft, JobQuery
from holdfast.wire.messages import error_named
from holdfast.wire.methods import WireMethod

Q = TypeVar("Q")
R = TypeVar("R")
Use = Callable[[RemoteJobs], Awaitable[object]]
TEMPLATES = [Template("brew")]


class Deaf:
    """A carrier without a server, which encodes and records the calls."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, float | None]] = []

    async def call(self, method: WireMethod[Q, R], request: Q, deadline_s: float | None) -> R:
        encoded_call(1, method, request)
        self.asked.append((method.name, deadline_s))
        raise UnavailableError("no server is running")

    async def stream(self, method: WireMethod[Q, R], request: Q) -> AsyncGenerator[R, None]:
        yield await self.call(method, request, None)

    async def close(self) -> None:
        pass


async def at_once(_: float) -> None:
    """Returns without sleeping."""


async def asked(use: Use) -> list[tuple[str, float | None]]:
    """Returns every attempt of a call, with its deadline."""
    carrier = Deaf()
    with pytest.raises(UnavailableError):
        await use(RemoteJobs(carrier, RetryPolicy(sleep=at_once)))
    return carrier.asked


async def test_end_of_a_job_is_waited_for_without_a_deadline() -> None:
    """The client waits for the end of a job without a deadline."""
    assert {deadline_s for _, deadline_s in await asked(lambda remote: remote.settled("x"))} == {None}


@pytest.mark.parametrize(
    ("drafts", "attempts"),
    [
        ([JobDraft()], 1),
        ([JobDraft(extra=Extra(unique_key="u"))], 1),
        ([JobDraft(id=str(uuid4()))], limits.RETRY_ATTEMPTS),
        ([JobDraft(extra=Extra(request_id="r"))], limits.RETRY_ATTEMPTS),
        ([JobDraft(id=str(uuid4())), JobDraft()], 1),
    ],
    ids=["plain", "unique", "id", "request-id", "mixed"],
)
async def test_submit_is_repeated_only_if_no_second_job_could_come_of_it(drafts: list[JobDraft], attempts: int) -> None:
    """The client retries a submit only if every job has an id or a request id, since unique keys become free again."""
    assert len(await asked(lambda remote: remote.submit(TEMPLATES, drafts))) == attempts


async def test_only_safe_calls_are_repeated() -> None:
    """The client retries reads and cancels, but sends a purge and a retry without a request id only once."""
    assert len(await asked(lambda remote: remote.get("x"))) == limits.RETRY_ATTEMPTS
    assert len(await asked(lambda remote: remote.cancel("x", ""))) == limits.RETRY_ATTEMPTS
    assert len(await asked(lambda remote: remote.retry("x", "r"))) == limits.RETRY_ATTEMPTS
    assert len(await asked(lambda remote: remote.retry("x"))) == 1
    assert len(await asked(lambda remote: remote.purge("q", ""))) == 1


@pytest.mark.parametrize(
    "use",
    [
        lambda remote: remote.submit([Template("brew", priority=1 << 64)], [JobDraft()]),
        lambda remote: remote.submit(TEMPLATES, [JobDraft(payload=cast("bytes", object()))]),
        lambda remote: remote.submit(TEMPLATES, [JobDraft(payload=b"x" * limits.MESSAGE_BYTES_MAX)]),
        lambda remote: remote.get("\ud800"),
        lambda remote: remote.find(JobQuery(), "", -1),
        lambda remote: anext(remote.feed(-(1 << 64))),
    ],
    ids=["priority", "payload", "message", "half-a-character", "size", "position"],
)
async def test_value_that_no_message_can_hold_is_refused(use: Use) -> None:
    """A value that no message can hold is refused as INVALID_ARGUMENT, and nothing is sent."""
    carrier = Deaf()
    with pytest.raises(InvalidArgumentError):
        await use(RemoteJobs(carrier))
    assert carrier.asked == []


@pytest.mark.parametrize("code", list(Code))
def test_every_code_comes_back_as_its_error(code: Code) -> None:
    """The client raises the error class that belongs to the code of the response."""
    error = error_named(code.value, "WHY", "because")
    assert (error.code, error.reason, error.message) == (code, "WHY", "because")


def test_unknown_code_is_internal() -> None:
    """An unknown code, which a newer server may send, becomes INTERNAL."""
    assert error_named("BRAND_NEW", "", "").code == Code.INTERNAL


@pytest.mark.parametrize(
    "modules",
    [
        "holdfast.client.remote_link, holdfast.client.nodes_link, holdfast.client.wire_work",
        "holdfast.server.unix_socket, holdfast.server.http.server",
    ],
    ids=["client", "server"],
)
def test_wire_needs_neither_grpc_nor_protobuf(modules: str) -> None:
    """The clients of a server and of nodes, workers, and the servers of the wire import neither gRPC nor protobuf."""
    program = f"import sys, {modules}; sys.exit(not {{'grpc', 'google.protobuf'}}.isdisjoint(sys.modules))"
    subprocess.run([sys.executable, "-c", program], check=True)
