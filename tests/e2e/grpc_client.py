"""A plain gRPC client, independent of the product's own clients."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import grpc
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from grpc_health.v1 import health_pb2, health_pb2_grpc

from holdfast.proto import holdfast_pb2 as own
from holdfast.proto import holdfast_pb2_grpc as own_rpc
from holdfast.proto import taskqueue_internal_pb2 as internal
from holdfast.proto import taskqueue_internal_pb2_grpc as internal_rpc
from holdfast.proto import taskqueue_public_pb2 as public
from holdfast.proto import taskqueue_public_pb2_grpc as public_rpc
from tests.e2e.wait_until import DEADLINE_S, eventually

TERMINAL = frozenset({public.DONE, public.FAILED, public.CANCELED})
DETAILS = "grpc-status-details-bin"

_OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_send_message_length", -1),
)


@dataclass(frozen=True)
class Refused:
    """A response that is not OK, split into its parts."""

    code: grpc.StatusCode
    message: str
    status: Status
    info: ErrorInfo

    @property
    def reason(self) -> str:
        return str(self.info.reason)


class Wire:
    """One gRPC connection with the methods of all services."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.channel = grpc.insecure_channel(target, _OPTIONS)
        self._public: Any = public_rpc.TaskQueuePublicServiceStub(self.channel)
        self._workers: Any = internal_rpc.CoordinatorInternalServiceStub(self.channel)
        self._jobs: Any = own_rpc.JobServiceStub(self.channel)
        self._health = health_pb2_grpc.HealthStub(self.channel)

    def close(self) -> None:
        self.channel.close()

    # -- clients

    def submit(
        self,
        job_type: str = "sim",
        *,
        key: str = "",
        ms: int = 0,
        size: int = 0,
        labels: Mapping[str, str] | None = None,
        timeout_s: float = DEADLINE_S,
    ) -> public.SubmitJobResponse:
        """Calls SubmitJob."""
        spec = public.JobSpec(job_type=job_type, work_duration_ms=ms, payload_size_bytes=size, labels=labels or {})
        request = public.SubmitJobRequest(spec=spec, client_request_id=key)
        response: public.SubmitJobResponse = self._public.SubmitJob(request, timeout=timeout_s)
        return response

    def new(self, **spec: Any) -> str:  # noqa: ANN401 - the fields of `submit`
        """Submits a job and returns its id."""
        return self.submit(**spec).job_id

    def status(self, job_id: str, timeout_s: float = DEADLINE_S) -> public.GetJobStatusResponse:
        """Calls GetJobStatus."""
        request = public.GetJobStatusRequest(job_id=job_id)
        response: public.GetJobStatusResponse = self._public.GetJobStatus(request, timeout=timeout_s)
        return response

    def result(self, job_id: str) -> public.GetJobResultResponse:
        """Calls GetJobResult."""
        request = public.GetJobResultRequest(job_id=job_id)
        response: public.GetJobResultResponse = self._public.GetJobResult(request, timeout=DEADLINE_S)
        return response

    def cancel(self, job_id: str, reason: str = "") -> public.CancelJobResponse:
        """Calls CancelJob."""
        request = public.CancelJobRequest(job_id=job_id, reason=reason)
        response: public.CancelJobResponse = self._public.CancelJob(request, timeout=DEADLINE_S)
        return response

    def page(
        self, *states: int, size: int = 0, token: str = "", sort: int = public.JOB_SORT_UNSPECIFIED
    ) -> public.ListJobsResponse:
        """Calls ListJobs."""
        request = public.ListJobsRequest(
            status_filter=states,  # type: ignore[arg-type]
            page=public.PageRequest(page_size=size, page_token=token),
            sort=sort,  # type: ignore[arg-type]
        )
        response: public.ListJobsResponse = self._public.ListJobs(request, timeout=DEADLINE_S)
        return response

    def batch(self, request: own.SubmitJobsRequest) -> own.SubmitJobsResponse:
        """Calls SubmitJobs of holdfast.v1."""
        response: own.SubmitJobsResponse = self._jobs.SubmitJobs(request, timeout=DEADLINE_S)
        return response

    def wait_for(self, job_id: str, *states: int) -> public.GetJobStatusResponse:
        """Waits until the job has one of these states, or a terminal one if none is given, and returns its status."""
        wanted = frozenset(states) or TERMINAL
        return eventually(lambda: self.status(job_id), lambda job: job.status in wanted)

    def running(self, **spec: Any) -> str:  # noqa: ANN401 - the fields of `submit`
        """Returns the id of a new RUNNING job; submits another if the job ended before it was seen RUNNING."""
        job_id = self.new(**spec)
        while self.wait_for(job_id, public.RUNNING, *TERMINAL).status != public.RUNNING:
            job_id = self.new(**spec)
        return job_id

    def done(self, key: str) -> str:
        """Submits a job with this key, waits until it is DONE and returns its id; retries while UNAVAILABLE."""

        def state() -> tuple[str, int]:
            try:
                job_id = self.new(key=key, size=10)
                return job_id, self.status(job_id).status
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                return "", 0

        return eventually(state, lambda seen: seen[1] == public.DONE, what=f"a job for {key}")[0]

    def all_jobs(self, *states: int, sort: int = public.CREATED_AT_ASC) -> list[public.JobSummary]:
        """Returns the jobs of all pages of a listing."""
        jobs: list[public.JobSummary] = []
        token = ""
        while True:
            page = self.page(*states, size=200, token=token, sort=sort)
            jobs += page.jobs
            token = page.page.next_page_token
            if not token:
                return jobs

    # -- workers

    def heartbeat(
        self, worker: str, running: Mapping[str, int] | None = None, capacity: int = 1
    ) -> internal.WorkerHeartbeatResponse:
        """Sends WorkerHeartbeat; `running` maps job ids to tokens."""
        request = internal.WorkerHeartbeatRequest(worker_id=worker, capacity_hint=capacity)
        if running is not None:
            request.running.SetInParent()
            for job_id, token in running.items():
                request.running.jobs.add(job_id=job_id, token=token)
        response: internal.WorkerHeartbeatResponse = self._workers.WorkerHeartbeat(request, timeout=DEADLINE_S)
        return response

    def fetch(self, worker: str) -> internal.FetchWorkResponse:
        """Calls FetchWork."""
        request = internal.FetchWorkRequest(worker_id=worker)
        response: internal.FetchWorkResponse = self._workers.FetchWork(request, timeout=DEADLINE_S)
        return response

    def report(
        self,
        worker: str,
        job_id: str,
        outcome: int = public.JOB_OUTCOME_SUCCEEDED,
        **fields: Any,  # noqa: ANN401 - the fields of the message
    ) -> bool:
        """Sends ReportWorkOutcome and returns whether the report was accepted."""
        request = internal.ReportWorkOutcomeRequest(
            worker_id=worker,
            job_id=job_id,
            outcome=outcome,  # type: ignore[arg-type]
            **fields,
        )
        response: internal.ReportWorkOutcomeResponse = self._workers.ReportWorkOutcome(request, timeout=DEADLINE_S)
        return response.accepted

    # -- operators

    def health(self, service: str = "") -> int:
        """Returns the status from the health check."""
        request = health_pb2.HealthCheckRequest(service=service)
        return int(self._health.Check(request, timeout=DEADLINE_S).status)

    def raw(self, path: str, body: bytes, timeout_s: float = DEADLINE_S) -> bytes:
        """Calls any unary method with any bytes."""
        answer: bytes = self.channel.unary_unary(path, bytes, bytes)(body, timeout=timeout_s)
        return answer


def refusal(call: Callable[[], object]) -> Refused:
    """Returns the refusal of the call; fails if the call succeeds."""
    try:
        answer = call()
    except grpc.RpcError as error:
        return taken_apart(error)
    raise AssertionError(f"expected a refusal, got {answer!r}")


def taken_apart(error: Any) -> Refused:  # noqa: ANN401 - a grpc.RpcError that is also a grpc.Call
    """Splits the error of a refused call into its parts."""
    trailing = {item.key: item.value for item in error.trailing_metadata() or ()}
    status, info = Status.FromString(trailing.get(DETAILS, b"")), ErrorInfo()
    if status.details:
        status.details[0].Unpack(info)
    return Refused(error.code(), error.details(), status, info)
