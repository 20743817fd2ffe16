"""A client of the addresses of a URL, for commands and the dashboard: a monolith's nodes, or a cluster's shards."""

from collections.abc import Sequence

from holdfast.client.access import Access
from holdfast.client.discovery import discover
from holdfast.client.remote import RemoteJobs
from holdfast.client.retry_policy import RetryPolicy
from holdfast.client.routed_jobs import RoutedJobs, UnnamedJobs
from holdfast.client.wire_transport import ReconnectingTransport


async def jobs_at(
    addresses: Sequence[str], access: Access, *, retry_policy: RetryPolicy | None = None, names_jobs: bool = False
) -> RemoteJobs | RoutedJobs:
    """Returns a client of everything at the addresses; `UnavailableError` if no server answers.

    `names_jobs`: the router makes the ids of jobs, because the caller gives ids only to make a submit repeatable.
    """
    places = await discover(addresses, access)
    if places.are_replaced and len(places.names) == 1:  # a cluster with one shard has everything that a server has
        return RemoteJobs(ReconnectingTransport(places.endpoint(places.names[0], access)), retry_policy)
    routed = UnnamedJobs if names_jobs else RoutedJobs
    return routed(places.names, access, endpoint=places.endpoint, retry_policy=retry_policy)
