"""Jobs carry the trace context of the request that creates them."""

from typing import Any

import grpc
import pytest

from holdfast.proto import holdfast_pb2 as pb
from holdfast.proto import holdfast_pb2_grpc as rpc
from holdfast.proto import taskqueue_public_pb2 as public_pb
from holdfast.proto import taskqueue_public_pb2_grpc as public_rpc
from tests.integration.conftest import Start
from tests.integration.http_client import get, post

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER = "00-11111111111111111111111111111111-2222222222222222-00"
SENT = {"traceparent": PARENT, "tracestate": "vendor=1"}

#: The headers of a request, the headers of its job, and the headers that the job carries in the end.
CASES: list[tuple[dict[str, str], dict[str, str], dict[str, str]]] = [
    (SENT, {}, SENT),
    (SENT, {"h": "1"}, {"h": "1", **SENT}),
    (SENT, {"traceparent": OTHER}, {"traceparent": OTHER}),
    ({}, {"h": "1"}, {"h": "1"}),
    ({"traceparent": "nonsense", "tracestate": "vendor=1"}, {}, {}),
    ({"tracestate": "vendor=1"}, {}, {}),
]


async def headers_of(http: str, job_id: str) -> Any:  # noqa: ANN401 - JSON
    return (await get(http, f"/api/v1/jobs/{job_id}")).json["headers"]


@pytest.mark.parametrize(("sent", "own", "carried"), CASES)
async def test_context_of_a_request_over_http_is_carried(
    start: Start, sent: dict[str, str], own: dict[str, str], carried: dict[str, str]
) -> None:
    """Over HTTP a single job, a batch and the short form carry the request's context, and an invalid one is ignored."""
    http = (await start(no_http=False, http_port=0)).http_address
    one = await post(http, "/api/v1/jobs", {"type": "echo", "headers": own}, **sent)
    many = await post(http, "/api/v1/jobs", {"jobs": [{"type": "echo", "headers": own}] * 2}, **sent)
    short = await post(http, "/api/jobs", {"job_type": "echo"}, **sent)
    assert [reply.status for reply in (one, many, short)] == [202] * 3
    for job in (one.json, *many.json["jobs"]):
        assert await headers_of(http, job["id"]) == carried
    if not own:
        assert await headers_of(http, short.json["id"]) == carried


@pytest.mark.parametrize(("sent", "own", "carried"), CASES)
async def test_context_of_a_request_over_grpc_is_carried(
    start: Start, sent: dict[str, str], own: dict[str, str], carried: dict[str, str]
) -> None:
    """Over gRPC a batch and the frozen call carry the request's context."""
    server = await start(no_http=False, http_port=0)
    async with grpc.aio.insecure_channel(server.address) as channel:
        metadata = tuple(sent.items())
        request = pb.SubmitJobsRequest(templates=[pb.JobTemplate(type="echo")], jobs=[pb.NewJob(headers=own)] * 2)
        batch = await rpc.JobServiceStub(channel).SubmitJobs(request, metadata=metadata)
        frozen = await public_rpc.TaskQueuePublicServiceStub(channel).SubmitJob(
            public_pb.SubmitJobRequest(spec=public_pb.JobSpec(job_type="x")), metadata=metadata
        )
    for job_id in batch.job_ids:
        assert await headers_of(server.http_address, job_id) == carried
    if not own:
        assert await headers_of(server.http_address, frozen.job_id) == carried


async def test_repeated_request_in_another_trace_returns_the_first_job(start: Start) -> None:
    """A repeated request in another trace returns the first job, which keeps its first context."""
    http = (await start(no_http=False, http_port=0)).http_address
    first = await post(http, "/api/v1/jobs", {"type": "echo"}, Idempotency_Key="k", traceparent=PARENT)
    second = await post(http, "/api/v1/jobs", {"type": "echo"}, Idempotency_Key="k", traceparent=OTHER)
    assert second.json["existing"] is True
    assert second.json["id"] == first.json["id"]
    assert await headers_of(http, first.json["id"]) == {"traceparent": PARENT}
