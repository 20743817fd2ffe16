"""Methods of `holdfast.v1.AdminService`."""

from holdfast.core.capabilities import Capability
from holdfast.ports import AdminApi
from holdfast.proto import holdfast_pb2 as pb
from holdfast.server.backend import Backend
from holdfast.server.grpc.requests import mode_of
from holdfast.server.grpc.responses import capabilities_message, queue_message, stats_message, worker_message
from holdfast.server.request_checks import checked_name


class AdminCalls:
    """The operations for administrators."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @property
    def _admin(self) -> AdminApi:
        return self._backend.capability(self._backend.admin, Capability.ADMINISTRATION)

    async def stats(self, request: pb.GetStatsRequest) -> pb.Stats:
        """Returns the statistics of the whole system."""
        return stats_message(await self._admin.stats())

    async def queues(self, request: pb.ListQueuesRequest) -> pb.ListQueuesResponse:
        """Returns every queue, by name."""
        return pb.ListQueuesResponse(queues=map(queue_message, await self._admin.queues()))

    async def set_mode(self, request: pb.SetQueueModeRequest) -> pb.SetQueueModeResponse:
        """Opens, pauses or drains a queue."""
        queue = checked_name("queue", request.queue)
        await self._admin.set_queue_mode(queue, mode_of(request.mode), request.reason)
        return pb.SetQueueModeResponse()

    async def purge(self, request: pb.PurgeQueueRequest) -> pb.PurgeQueueResponse:
        """Cancels all waiting jobs of a queue."""
        queue = checked_name("queue", request.queue)
        return pb.PurgeQueueResponse(canceled=await self._admin.purge(queue, request.reason))

    async def workers(self, request: pb.ListWorkersRequest) -> pb.ListWorkersResponse:
        """Returns every worker that is connected or was so recently."""
        return pb.ListWorkersResponse(workers=map(worker_message, await self._admin.workers()))

    async def drain(self, request: pb.DrainWorkerRequest) -> pb.DrainWorkerResponse:
        """Requests a worker to finish its jobs and exit."""
        await self._admin.drain_worker(checked_name("worker_id", request.worker_id))
        return pb.DrainWorkerResponse()

    async def capabilities(self, request: pb.GetCapabilitiesRequest) -> pb.Capabilities:
        """Returns the capabilities of the backend, even if it lacks administration."""
        return capabilities_message(self._backend.capabilities)
