"""From the URL of a server, or of all nodes of one, to a link."""

from collections.abc import Callable, Sequence

from holdfast.client.access import access_of
from holdfast.client.link import Link


def reaching(url: str, addresses: Sequence[str], *, token: str, fallback: str) -> Callable[[], Link]:
    """What opens the link, later; what cannot be is refused now."""
    access = access_of(url, token=token, fallback=fallback)

    def link() -> Link:
        if len(addresses) > 1:
            from holdfast.client.nodes_link import NodesLink  # noqa: PLC0415 - only who has several nodes needs it

            return NodesLink(addresses, access)
        from holdfast.client.remote_link import Remote  # noqa: PLC0415 - and nothing of gRPC before the first use

        return Remote(addresses[0], access)

    return link
