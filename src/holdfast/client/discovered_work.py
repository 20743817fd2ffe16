"""`WorkApi` at the addresses of a URL, whatever is there: one server, several nodes, or the shards of a cluster."""

from collections.abc import Sequence

from holdfast.client.access import NO_CREDENTIALS, Access
from holdfast.client.discovery import Places, discover
from holdfast.client.endpoints import Endpoint, TcpEndpoint
from holdfast.client.routed_work import RoutedWork, Told
from holdfast.client.wire_work import WireWork
from holdfast.errors import HoldfastError
from holdfast.ports import Introduction, WorkSession
from holdfast.wire.messages import SHARD_NEEDED


class DiscoveredWork:
    """Opens sessions with every place that grants leases."""

    def __init__(
        self, addresses: Sequence[str], told: Told | None = None, access: Access = NO_CREDENTIALS, *, advice: str = ""
    ) -> None:
        """`told` is called when one of several places is lost, and when it is back."""
        self._addresses = addresses
        self._told = told
        self._access = access
        self._single: Endpoint | None = (
            TcpEndpoint(addresses[0], access, advice=advice) if len(addresses) == 1 else None
        )

    async def open(self, introduction: Introduction) -> WorkSession:
        """Opens a session; `UnavailableError` if no server answers."""
        if self._single is not None:
            try:
                return await WireWork(self._single).open(introduction)
            except HoldfastError as error:
                if error.reason != SHARD_NEEDED:
                    raise
        return await self._at(await discover(self._addresses, self._access)).open(introduction)

    def _at(self, places: Places) -> WireWork | RoutedWork:
        if len(places.names) == 1:
            return WireWork(places.endpoint(places.names[0], self._access))
        return RoutedWork(places.names, self._told, self._access, endpoint=places.endpoint)
