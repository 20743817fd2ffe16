"""`holdfast://host:port`: a link to a server, over the wire."""

from holdfast.client.access import NO_CREDENTIALS, Access
from holdfast.client.blocking_client import BlockingClient
from holdfast.client.endpoints import TcpEndpoint
from holdfast.client.link import ClientLink
from holdfast.client.remote import RemoteJobs
from holdfast.client.wire_transport import ReconnectingTransport
from holdfast.client.wire_work import WireWork
from holdfast.ports import WorkApi


class RemoteLink(ClientLink):
    """One connection for asynchronous callers, and one for each thread of synchronous callers."""

    def __init__(self, address: str, access: Access = NO_CREDENTIALS) -> None:
        self._endpoint = TcpEndpoint(address, access)
        self._blocking_calls = BlockingClient(self._endpoint)
        super().__init__(RemoteJobs(ReconnectingTransport(self._endpoint), joins=True))

    def blocking_calls(self) -> BlockingClient:
        """Returns the API for calls on the caller's own thread."""
        return self._blocking_calls

    async def work(self) -> WorkApi:
        """Returns an API whose sessions have a connection each."""
        return WireWork(self._endpoint)

    async def close(self) -> None:
        """Closes all connections."""
        self._blocking_calls.close()
        await super().close()
