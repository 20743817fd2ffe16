"""The names that a server goes by: whoever points a name of their own at it gets nothing."""

import ipaddress
import re
from collections.abc import Iterable

from holdfast.errors import PermissionDeniedError

_HOST = re.compile(r"(?:\[(?P<address>[^\]]+)\]|(?P<name>[^:\[\]]*))(?::[0-9]*)?")


class HostNames:
    """Those of one server."""

    def __init__(self, host: str, allowed_hosts: Iterable[str] = ()) -> None:
        """`host` is the address that it listens on; names come without ports, and `*` stands for all."""
        allowed = {name.strip().lower() for name in allowed_hosts if name.strip()}
        self._takes_all = "*" in allowed
        self._takes_addresses = _is_unspecified(host)
        self._names = frozenset({"localhost", host.lower(), *(name.strip("[]") for name in allowed)})

    def check(self, given: bytes) -> None:
        """`PermissionDeniedError` unless a header `Host` has one of the names."""
        name = _name_of(given.decode("latin-1").lower())
        if self._takes_all or name in self._names or self._is_address(name):
            return
        shown = given[:80].decode("latin-1")
        raise PermissionDeniedError(
            f"expected Host to be a name of this server, got {shown!r}; it knows others by --allowed-hosts",
            reason="HOST_UNKNOWN",
        )

    def _is_address(self, name: str) -> bool:
        """An address is no name that somebody could point elsewhere."""
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or self._takes_addresses


def _is_unspecified(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _name_of(host: str) -> str:
    """Without the port; an address of IPv6 without its brackets."""
    found = _HOST.fullmatch(host)
    return (found["address"] or found["name"]) if found is not None else ""
