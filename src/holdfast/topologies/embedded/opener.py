"""A path or `memory://`: the links to a ledger that this process may serve itself."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from holdfast.errors import InvalidArgumentError
from holdfast.settings import MEMORY, addresses_of

if TYPE_CHECKING:
    from holdfast.client.link import Link
    from holdfast.ledger.ports import Clock

# ruff: noqa: PLC0415 - an app that only declares jobs loads no ledger


def opener(url: str, settings: Mapping[str, object], clock: "Clock | None", token: str) -> "Callable[[], Link]":
    """Returns a function that opens the link. Refuses a token, and a wrong path or setting, now."""
    if token:
        raise InvalidArgumentError(
            "a token is allowed only for a server (holdfast:// or holdfasts://); remove it",
            reason="SETTINGS_INVALID",
        )
    if not url or "\0" in url:
        raise InvalidArgumentError(
            f"the URL must be the path of a directory, got {url!r}; for example ./holdfast-data",
            reason="URL_INVALID",
        )
    _refuse_bare_address(url)
    if settings:
        from holdfast.settings_sources import of_program

        of_program(url, settings)
    return lambda: _opened(url, settings, clock)


def _refuse_bare_address(url: str) -> None:
    """Refuses an address without a scheme: its jobs would go to a directory of that name, where no worker looks."""
    if ":" in url and url != MEMORY and addresses_of(url):
        raise InvalidArgumentError(
            f"the URL must have a scheme, got the address {url!r}; use holdfast://{url} for a server,"
            f" or ./{url} for a directory",
            reason="URL_INVALID",
        )


def _opened(url: str, settings: Mapping[str, object], clock: "Clock | None") -> "Link":
    from holdfast.settings_sources import of_program

    if url == MEMORY:
        from holdfast.topologies.embedded.served_ledger import MemoryLink

        return MemoryLink(of_program(url, settings), clock)
    from holdfast.topologies.embedded.directory import DirectoryLink

    return DirectoryLink(of_program(url, settings), clock)
