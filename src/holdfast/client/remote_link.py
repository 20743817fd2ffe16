"""`holdfast://host:port`: a link to a server, over the wire."""

from holdfast.client.blocking_client import BlockingClient
from holdfast.client.endpoints import Endpoint
from holdfast.client.link import ClientLink
from holdfast.client.remote import RemoteJobs
from holdfast.client.wire_transport import ReconnectingTransport
from holdfast.ports import WorkApi


class RemoteLink(ClientLink):
    """One connection for asynchronous callers, and one for each thread of synchronous callers."""

    def __init__(self, endpoint: Endpoint, work: WorkApi, *, is_replaced: bool = False) -> None:
        """`is_replaced`: the endpoint finds the successor of a server that is lost."""
        self._blocking_calls = BlockingClient(endpoint)
        self._work = work
        super().__init__(RemoteJobs(ReconnectingTransport(endpoint), joins=True), is_replaced=is_replaced)

    def blocking_calls(self) -> BlockingClient:
        """Returns the API for calls on the caller's own thread."""
        return self._blocking_calls

    async def work(self) -> WorkApi:
        """Returns an API whose sessions have a connection each."""
        return self._work

    async def close(self) -> None:
        """Closes all connections."""
        self._blocking_calls.close()
        await super().close()
