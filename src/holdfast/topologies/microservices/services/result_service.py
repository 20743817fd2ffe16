"""The result service: the terminal states and outputs of jobs.

`callers` has authorized each call.

Invariants: a reply is sent when its change is durable; the first envelope of a job stays; a checksum is always that of
the stored output.
"""

import hashlib
from pathlib import Path

from holdfast import limits
from holdfast.core.lifecycle import TERMINAL
from holdfast.errors import InvalidArgumentError
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.proto import taskqueue_internal_pb2_grpc as rpc
from holdfast.proto.enums import job_status
from holdfast.server.grpc.status import Context, answered
from holdfast.server.request_checks import checked_id, checked_new_id
from holdfast.topologies.microservices.services.environment import ResultEnvironment, hashes_of
from holdfast.topologies.microservices.services.internal_server import ServiceServer
from holdfast.topologies.microservices.services.owner import OwnerDecision, StateOwner
from holdfast.topologies.microservices.services.roles import Host, OwnerService, Service, full_name, opened
from holdfast.topologies.microservices.state.envelopes import Envelope, EnvelopeRetention, Envelopes


class ResultService(rpc.ResultInternalServiceServicer):
    """The two methods on envelopes, which docs/contract.md defines."""

    def __init__(
        self, state_owner: StateOwner, envelopes: Envelopes, *, output_bytes_max: int = limits.OUTPUT_BYTES_MAX
    ) -> None:
        """`keeper` must be that of these envelopes."""
        self._state_owner = state_owner
        self._envelopes = envelopes
        self._output_bytes_max = output_bytes_max

    @answered
    async def StoreResult(self, request: pb.StoreResultRequest, context: Context) -> pb.StoreResultResponse:
        """Stores the first envelope of a job; for any other, returns whether it is equal, and the stored status."""
        envelope = self._envelope_of(request)

        def decide(now_ms: int) -> OwnerDecision:
            storing = self._envelopes.decide_store(envelope, now_ms)
            reply = pb.StoreResultResponse(
                stored=storing.standing == envelope,
                already_exists=not storing.is_first,
                current_terminal_status=job_status(storing.standing.state),
            )
            return OwnerDecision(storing.event, reply)

        reply: pb.StoreResultResponse = await self._state_owner.act(decide)
        return reply

    @answered
    async def GetResult(self, request: pb.GetResultRequest, context: Context) -> pb.GetResultResponse:
        """Returns the envelope of a job; not found, without an error, if there is none or it was evicted."""
        job_id = checked_id(request.job_id)
        envelope = await self._state_owner.read(lambda _: self._envelopes.find(job_id))
        if envelope is None:
            return pb.GetResultResponse(job_id=job_id)
        return pb.GetResultResponse(
            found=True,
            job_id=job_id,
            terminal_status=job_status(envelope.state),
            runtime_ms=envelope.runtime_ms,
            output_summary=envelope.summary,
            output_bytes=envelope.output,
            checksum=envelope.checksum,
        )

    def _envelope_of(self, request: pb.StoreResultRequest) -> Envelope:
        """Returns the validated envelope; a summary above its limit is cut."""
        job_id, output, state = checked_new_id(request.job_id), request.output_bytes, int(request.terminal_status)
        if state not in TERMINAL:
            raise InvalidArgumentError(
                f"terminal_status must be DONE, FAILED or CANCELED, got {state}",
                reason="STATUS_NOT_TERMINAL",
            )
        if len(output) > self._output_bytes_max:
            raise InvalidArgumentError(
                f"output_bytes must be at most {self._output_bytes_max} bytes, got {len(output)}",
                reason="OUTPUT_TOO_LARGE",
            )
        if request.checksum and request.checksum != hashlib.sha256(output).hexdigest():
            raise InvalidArgumentError(
                "checksum must be the SHA-256 of output_bytes in lower-case hex, or empty",
                reason="CHECKSUM_MISMATCH",
            )
        summary = request.output_summary[: limits.SUMMARY_CHARS_MAX]
        return Envelope(job_id, state, request.runtime_ms, summary, output)


def open_result(environment: ResultEnvironment, data: Path | None, host: Host) -> Service:
    """Opens the result service: the results of jobs."""
    retention = EnvelopeRetention.beyond(retain_ms=environment.retain_ms, retain_failed_ms=environment.retain_failed_ms)
    machine = Envelopes(retention)
    state_owner = opened(machine, data and data / "result", host, environment)
    service = ResultService(state_owner, machine, output_bytes_max=environment.output_bytes_max)
    server = ServiceServer(full_name("ResultInternalService"), hashes_of(environment))
    rpc.add_ResultInternalServiceServicer_to_server(service, server.handlers)
    return OwnerService(server, environment.port, state_owner)
