"""The calls of a remote client: deadlines, retries and validation."""

import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import cast
from uuid import uuid4

import pytest
from google.protobuf.message import Message

from holdfast import limits
from holdfast.client.remote import RemoteJobs
from holdfast.client.retry_policy import Retrying
from holdfast.client.transport import Response, error_named
from holdfast.core.model import Extra, Template
from holdfast.errors import Code, InvalidArgumentError, UnavailableError
from holdfast.ports import JobDraft, JobQuery

Use = Callable[[RemoteJobs], Awaitable[object]]
TEMPLATES = [Template("brew")]


class Deaf:
    """A carrier without a server, which records the calls."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, float | None]] = []

    async def call(self, method: str, request: Message, response: type[Response], deadline_s: float | None) -> Response:
        self.asked.append((method, deadline_s))
        raise UnavailableError("nobody is there")

    async def stream(self, method: str, request: Message, response: type[Response]) -> AsyncGenerator[Response, None]:
        yield await self.call(method, request, response, None)

    async def close(self) -> None:
        pass


async def at_once(_: float) -> None:
    """Returns without sleeping."""


async def asked(use: Use) -> list[tuple[str, float | None]]:
    """Returns every attempt of a call, with its deadline."""
    carrier = Deaf()
    with pytest.raises(UnavailableError):
        await use(RemoteJobs(carrier, Retrying(sleep=at_once)))
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


async def test_simulated_work_is_not_submitted_as_something_else() -> None:
    """The client refuses simulated work before it sends anything, because the message has no field for it."""
    with pytest.raises(InvalidArgumentError):
        await RemoteJobs(Deaf()).submit([Template("brew", simulated=True)], [JobDraft()])


@pytest.mark.parametrize(
    "use",
    [
        lambda remote: remote.submit([Template("brew", priority=-1)], [JobDraft()]),
        lambda remote: remote.submit(TEMPLATES, [JobDraft(template=-1)]),
        lambda remote: remote.submit(TEMPLATES, [JobDraft(payload=cast("bytes", object()))]),
        lambda remote: remote.get("\ud800"),
        lambda remote: remote.find(JobQuery(), "", -1),
        lambda remote: anext(remote.feed(-1)),
    ],
    ids=["priority", "template", "payload", "half-a-character", "size", "position"],
)
async def test_what_no_message_can_hold_is_refused(use: Use) -> None:
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


def test_code_that_nobody_knows_is_internal() -> None:
    """An unknown code, which a newer server may send, becomes INTERNAL."""
    assert error_named("BRAND_NEW", "", "").code == Code.INTERNAL


def test_client_of_a_directory_does_not_import_grpc() -> None:
    """A client of a directory does not import gRPC."""
    modules = "holdfast.client.remote, holdfast.client.socket_transport, holdfast.client.socket_work"
    server = "holdfast.server.unix_socket"
    program = f"import sys, {modules}, {server}; sys.exit(any(name.split('.')[0] == 'grpc' for name in sys.modules))"
    subprocess.run([sys.executable, "-c", program], check=True)
