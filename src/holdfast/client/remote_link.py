"""`holdfast://host:port`: a link to a server, over the wire."""

from holdfast.client.access import ANYBODY, Access
from holdfast.client.endpoints import TcpEndpoint
from holdfast.client.link import ClientLink
from holdfast.client.near_server import NearServer
from holdfast.client.remote import RemoteJobs
from holdfast.client.wire_transport import LastingCarrier
from holdfast.client.wire_work import WireWork
from holdfast.ports import WorkApi


class Remote(ClientLink):
    """One connection for asynchronous callers, and one for each thread of synchronous callers."""

    def __init__(self, address: str, access: Access = ANYBODY) -> None:
        self._endpoint = TcpEndpoint(address, access)
        self._near = NearServer(self._endpoint)
        super().__init__(RemoteJobs(LastingCarrier(self._endpoint), joins=True))

    def near(self) -> NearServer:
        """Returns the API for calls on the caller's own thread."""
        return self._near

    async def work(self) -> WorkApi:
        """Returns an API whose sessions have a connection each."""
        return WireWork(self._endpoint)

    async def close(self) -> None:
        """Closes all connections."""
        self._near.close()
        await super().close()
