"""`holdfast://host:port`, `holdfasts://` over TLS, and several addresses with commas: the links to servers."""

import os
from collections.abc import Callable, Mapping

from holdfast.client.access import access_of
from holdfast.client.link import Link
from holdfast.errors import InvalidArgumentError
from holdfast.settings import addresses_of, masked
from holdfast.settings_sources import TOKEN, secret_of


def opener(url: str, settings: Mapping[str, object], clock: object, token: str) -> Callable[[], Link]:
    """Returns a function that opens the link. Refuses settings, a clock and a wrong URL now."""
    addresses = addresses_of(url)
    if not addresses:
        form = "holdfast://host:port, or holdfast://host:port,host:port for different nodes"
        raise InvalidArgumentError(f"the URL must be {form}, got {masked(url)!r}", reason="URL_INVALID")
    if settings or clock:
        raise InvalidArgumentError(
            "settings and clock are not allowed for a server, which has its own; remove them",
            reason="SETTINGS_INVALID",
        )
    access = access_of(url, token=token, fallback=secret_of(TOKEN, os.environ))

    def link() -> Link:
        # Imported here, because an app that only declares jobs opens no connection.
        if len(addresses) > 1:
            from holdfast.client.nodes_link import DiscoveredLink  # noqa: PLC0415 - as above

            return DiscoveredLink(addresses, access)
        from holdfast.client.discovered_work import DiscoveredWork  # noqa: PLC0415 - as above
        from holdfast.client.endpoints import TcpEndpoint  # noqa: PLC0415 - as above
        from holdfast.client.nodes_link import tell  # noqa: PLC0415 - as above
        from holdfast.client.remote_link import RemoteLink  # noqa: PLC0415 - as above

        return RemoteLink(TcpEndpoint(addresses[0], access), DiscoveredWork(addresses, tell, access))

    return link
