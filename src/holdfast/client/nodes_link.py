"""`holdfast://host:port,host:port`: a link to several nodes, over the wire."""

from collections.abc import Sequence

from holdfast.client.access import NO_CREDENTIALS, Access
from holdfast.client.link import ClientLink
from holdfast.client.routed_jobs import UnnamedJobs
from holdfast.client.routed_work import RoutedWork
from holdfast.errors import HoldfastError
from holdfast.observe.logs import get_logger
from holdfast.ports import WorkApi


def tell(address: str, error: HoldfastError | None) -> None:
    """Logs that a worker has lost a node, or has it back."""
    if error is None:
        get_logger().info("node_back", node=address)
    else:
        get_logger().warning("node_away", node=address, message=f"{error.message}; continuing with the other nodes")


class NodesLink(ClientLink):
    """One connection to each node."""

    def __init__(self, addresses: Sequence[str], access: Access = NO_CREDENTIALS) -> None:
        """The addresses are in their fixed order."""
        super().__init__(UnnamedJobs(addresses, access))
        self._addresses = addresses
        self._access = access

    async def work(self) -> WorkApi:
        """Returns an API whose sessions connect to all nodes."""
        return RoutedWork(self._addresses, tell, self._access)
