"""Statuses for internal errors, without internal details."""

from collections.abc import AsyncIterator
from typing import Any, cast

import grpc
import pytest
from structlog.testing import capture_logs

from holdfast.core.commands import Refusal
from holdfast.errors import error_class
from holdfast.ledger.coordinator import OVERLOADED, STOPPING
from holdfast.ports import JobApi
from holdfast.proto import taskqueue_public_pb2 as public
from holdfast.proto import taskqueue_public_pb2_grpc as public_rpc
from holdfast.server.grpc.public_service import PublicService


class FailingJobs:
    """A backend that answers every call with one error."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, name: str) -> object:
        async def fail(*_: object, **__: object) -> None:
            raise self._error

        return fail


async def served(error: Exception) -> AsyncIterator[Any]:
    """A client of a gateway whose backend fails with this error."""
    server = grpc.aio.server()
    service = PublicService(cast("JobApi", FailingJobs(error)))
    public_rpc.add_TaskQueuePublicServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield public_rpc.TaskQueuePublicServiceStub(channel)
    await server.stop(None)


CALLS = [
    ("SubmitJob", public.SubmitJobRequest()),
    ("GetJobStatus", public.GetJobStatusRequest(job_id="x")),
    ("GetJobResult", public.GetJobResultRequest(job_id="x")),
    ("CancelJob", public.CancelJobRequest(job_id="x")),
    ("ListJobs", public.ListJobsRequest()),
]
EVERY_METHOD = pytest.mark.parametrize(("method", "request_"), CALLS, ids=[name for name, _ in CALLS])


async def answered(client: Any, method: str, request: object) -> grpc.aio.AioRpcError:  # noqa: ANN401
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await getattr(client, method)(request)
    return caught.value


@EVERY_METHOD
async def test_a_bug_is_internal_and_its_insides_stay_in_the_log(method: str, request_: object) -> None:
    """An unexpected error is INTERNAL without its text, and the log has the text and the method."""
    async for client in served(RuntimeError("password=hunter2")):
        with capture_logs() as lines:
            error = await answered(client, method, request_)
        assert error.code() == grpc.StatusCode.INTERNAL
        assert "hunter2" not in str(error.details())
        bugs = [line for line in lines if line["event"] == "bug"]
        assert [line["method"] for line in bugs] == [method]
        assert "hunter2" in str(bugs[0]["exc_info"])
        refused = [line for line in lines if line["event"] == "refused"]
        assert [(line["method"], line["grpc_code"]) for line in refused] == [(method, "INTERNAL")]


@pytest.mark.parametrize(
    ("refusal", "code"),
    [(OVERLOADED, grpc.StatusCode.RESOURCE_EXHAUSTED), (STOPPING, grpc.StatusCode.UNAVAILABLE)],
    ids=["overloaded", "stopping"],
)
@EVERY_METHOD
async def test_temporary_errors_have_retryable_codes(
    method: str, request_: object, refusal: Refusal, code: grpc.StatusCode
) -> None:
    """For every method an exhausted resource is RESOURCE_EXHAUSTED, and a stopping server is UNAVAILABLE."""
    error = error_class(refusal.code)(refusal.message, reason=refusal.reason)
    async for client in served(error):
        assert (await answered(client, method, request_)).code() == code
