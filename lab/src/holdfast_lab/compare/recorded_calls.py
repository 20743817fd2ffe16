"""The five calls of the frozen contract over plain stubs, with the locked deadlines; each call is recorded."""

import asyncio
import time
from typing import Any

import grpc

from holdfast.proto import taskqueue_public_pb2 as pb
from holdfast.proto import taskqueue_public_pb2_grpc as rpc
from holdfast_lab.compare.ingress import Router
from holdfast_lab.compare.records import OK, Records, Request
from holdfast_lab.compare.workloads import CANCEL, LIST, METHODS, RESULT, STATUS, SUBMIT

_DEADLINES_S = {SUBMIT: 3.0, CANCEL: 3.0, STATUS: 1.0, RESULT: 1.0, LIST: 1.0}
_OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),
    # Clients reconnect soon to a node that comes back, for every topology alike.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
)
_PAGE = 50


class CallOutcome:
    """The outcome of a call: a reply, or an error status."""

    __slots__ = ("code", "end", "reply")

    def __init__(self, code: int, reply: Any, end: int) -> None:  # noqa: ANN401 - one of five messages
        self.code = code
        self.reply = reply
        self.end = end

    @property
    def is_ok(self) -> bool:
        return self.code == OK


class Caller:
    """Calls to all nodes of a topology."""

    def __init__(self, targets: tuple[str, ...], router: Router, records: Records) -> None:
        self._channels = [grpc.aio.insecure_channel(target, _OPTIONS) for target in targets]
        stubs: list[Any] = [rpc.TaskQueuePublicServiceStub(channel) for channel in self._channels]
        self._calls = [[getattr(stub, method) for method in METHODS] for stub in stubs]
        self._router = router
        self._records = records

    async def connect(self, seconds: float) -> None:
        """Wait for every node."""
        for channel in self._channels:
            async with asyncio.timeout(seconds):
                await channel.channel_ready()

    async def close(self) -> None:
        for channel in self._channels:
            await channel.close(None)

    async def submit(self, intended: int, job_ms: int, request_id: str = "") -> tuple[CallOutcome, int]:
        """The outcome, and the node that got the request."""
        spec = pb.JobSpec(job_type="sim", work_duration_ms=job_ms, payload_size_bytes=64)
        node = self._router.for_submit(request_id)
        request = pb.SubmitJobRequest(spec=spec, client_request_id=request_id)
        return await self._call(SUBMIT, node, request, intended), node

    async def status(self, intended: int, job_id: str) -> CallOutcome:
        request = pb.GetJobStatusRequest(job_id=job_id)
        return await self._call(STATUS, self._router.for_job(job_id), request, intended)

    async def result(self, intended: int, job_id: str) -> CallOutcome:
        request = pb.GetJobResultRequest(job_id=job_id)
        return await self._call(RESULT, self._router.for_job(job_id), request, intended)

    async def cancel(self, intended: int, job_id: str) -> CallOutcome:
        request = pb.CancelJobRequest(job_id=job_id, reason="lab")
        return await self._call(CANCEL, self._router.for_job(job_id), request, intended)

    async def list(self, intended: int) -> CallOutcome:
        request = pb.ListJobsRequest(page=pb.PageRequest(page_size=_PAGE))
        return await self._call(LIST, self._router.for_list(), request, intended)

    async def _call(self, method: int, node: int, request: object, intended: int) -> CallOutcome:
        start = time.monotonic_ns()
        reply, code = None, OK
        try:
            reply = await self._calls[node][method](request, timeout=_DEADLINES_S[method])
        except grpc.aio.AioRpcError as error:
            code = error.code().value[0]
        end = time.monotonic_ns()
        self._records.add_request(Request(method, code, node, intended, start, end))
        return CallOutcome(code, reply, end)
