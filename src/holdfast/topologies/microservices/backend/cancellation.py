"""Cancels a job across three owners: a waiting job is removed first, so that no worker can receive it.

A cancel and a dispatch that race always detect each other: either the job was still waiting and ends here, or its
record has the cancel flag before a worker receives it.
"""

from holdfast.core.commands import CancelReply
from holdfast.core.lifecycle import CANCELED, TERMINAL, State
from holdfast.core.validation import check_reason
from holdfast.observe.logs import get_logger
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.proto import taskqueue_public_pb2 as public_pb
from holdfast.server.grpc.internal_messages import enqueue_again
from holdfast.topologies.microservices.backend.owner_clients import Owners

_ACTOR = "gateway"


class Cancellation:
    """One cancel. If a step fails, a repeated cancel or the sweep does the rest."""

    def __init__(self, owners: Owners, job_id: str, reason: str) -> None:
        self._owners = owners
        self._job_id = job_id
        self._reason = reason

    async def run(self) -> CancelReply:
        """Cancels the job and returns its state; a terminal job stays as it is."""
        if refusal := check_reason(self._reason):
            raise refusal.error()
        request = pb.RemoveJobIfPresentRequest(job_id=self._job_id)
        if (await self._owners.queue.remove(request)).removed:
            return await self._end()
        return await self._ask_to_stop()

    async def _end(self) -> CancelReply:
        """Ends a job that no worker can receive any more: stores its envelope, then moves its status."""
        envelope = pb.StoreResultRequest(
            job_id=self._job_id, terminal_status=public_pb.CANCELED, output_summary=self._reason
        )
        stored = await self._owners.result.store(envelope)
        if stored.already_exists and stored.current_terminal_status != public_pb.CANCELED:
            # It has ended before, but was queued again because its status was not moved: dispatch ends it as its
            # envelope says.
            reply = await self._ask_to_stop()
            await self._enqueue_again()
            return reply
        move = pb.TransitionJobStatusRequest(
            job_id=self._job_id,
            expected_from_status=public_pb.QUEUED,
            to_status=public_pb.CANCELED,
            actor=_ACTOR,
            reason=self._reason,
        )
        moved = await self._owners.job.move(move)
        if moved.applied:
            return CancelReply(CANCELED, was_terminal=False)
        get_logger().warning("cancel_guard_lost", job_id=self._job_id, status=int(moved.current_status))
        return await self._ask_to_stop()

    async def _ask_to_stop(self) -> CancelReply:
        request = pb.SetCancelRequestedRequest(job_id=self._job_id, cancel_requested=True, reason=self._reason)
        answer = await self._owners.job.request_cancel(request)
        state = State(answer.current_status)
        return CancelReply(state, was_terminal=state in TERMINAL)

    async def _enqueue_again(self) -> None:
        asked = pb.GetJobRecordRequest(job_id=self._job_id, without_payload=True)
        record = await self._owners.job.record(asked)
        if record.summary.status == public_pb.QUEUED:
            await self._owners.queue.enqueue(enqueue_again(record))
