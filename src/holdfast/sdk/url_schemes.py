"""From a URL to a link: a path, `memory://`, `holdfast://host:port`, or `holdfast://host:port,host:port` for nodes.

A server may want a token: `holdfast://TOKEN@host:port`; and over TLS it is `holdfasts://`. `zk://host:port/path` is an
ensemble of ZooKeeper servers, where apps and workers meet without a server of ours.
"""

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from holdfast.errors import InvalidArgumentError

if TYPE_CHECKING:
    from holdfast.client.link import Link
    from holdfast.ledger.ports import Clock
    from holdfast.settings import Settings

MEMORY = "memory://"
_SERVERS = ("holdfast://", "holdfasts://")
_ENSEMBLE = "zk://"
_CONNECT = "HOLDFAST_CONNECT"
_DIRECTORY = "./holdfast-data"


def default_url() -> str:
    """Where jobs are when the program does not say: what commands and workers are told by the environment, too."""
    named = os.environ.get(_CONNECT, "")
    if not named:
        return _DIRECTORY
    from holdfast.settings import addresses_of

    return f"holdfast://{named}" if "://" not in named and addresses_of(named) else named


def opener(url: str, settings: Mapping[str, object], clock: "Clock | None", token: str = "") -> "Callable[[], Link]":
    """What opens the link, later and on the portal's loop; a URL or setting that cannot be is refused now."""
    if url.startswith(_SERVERS):
        addresses = _addresses(url)
        if settings or clock:
            raise InvalidArgumentError("a server has settings of its own; give none here", reason="SETTINGS_INVALID")
        from holdfast.client.server_link import reaching
        from holdfast.settings_sources import TOKEN, secret_of

        return reaching(url, addresses, token=token, fallback=secret_of(TOKEN, os.environ))
    if url.startswith(_ENSEMBLE):
        if settings or clock or token:
            message = "an ensemble has no settings, clock or token; give none here"
            raise InvalidArgumentError(message, reason="SETTINGS_INVALID")
        return _to_ensemble(url)
    if token:
        raise InvalidArgumentError("only a server wants a token; give none here", reason="SETTINGS_INVALID")
    if "://" in url and url != MEMORY:
        from holdfast.settings import masked

        raise InvalidArgumentError(
            f"expected the URL to be a path, memory://, holdfast://host:port or zk://host:port, got {masked(url)!r}",
            reason="URL_INVALID",
        )
    if not url or "\0" in url:
        raise InvalidArgumentError(f"expected the path of a directory, got {url!r}", reason="URL_INVALID")
    _refuse_bare_address(url)
    if settings:
        _settings(url, settings)
    return lambda: _to_ledger(url, settings, clock)


def without_secrets(url: str) -> str:
    """The URL as it may be shown."""
    if "@" not in url:
        return url
    from holdfast.settings import masked

    return masked(url)


def _refuse_bare_address(url: str) -> None:
    """Whoever forgets the scheme would have jobs in a directory of that name, where no worker looks."""
    if ":" not in url or url == MEMORY:
        return
    from holdfast.settings import addresses_of

    if addresses_of(url):
        raise InvalidArgumentError(
            f"expected a URL, got the address {url!r}: say holdfast://{url} for a server, ./{url} for a directory",
            reason="URL_INVALID",
        )


def _addresses(url: str) -> list[str]:
    from holdfast.settings import addresses_of, masked

    addresses = addresses_of(url)
    if not addresses:
        form = "holdfast://host:port, or holdfast://host:port,host:port for different nodes"
        raise InvalidArgumentError(f"expected {form}, got {masked(url)!r}", reason="URL_INVALID")
    return addresses


def _settings(url: str, given: Mapping[str, object]) -> "Settings":
    from holdfast.settings_sources import of_program  # only whoever serves needs it

    return of_program(url, given)


def _to_ensemble(url: str) -> "Callable[[], Link]":
    from holdfast.topologies.zookeeper.ensemble_url import ensemble_of

    ensemble = ensemble_of(url)

    def link() -> "Link":
        from holdfast.topologies.zookeeper.link import Bidding

        return Bidding(ensemble)

    return link


def _to_ledger(url: str, settings: Mapping[str, object], clock: "Clock | None") -> "Link":
    if url == MEMORY:
        from holdfast.topologies.embedded.memory import MemoryLink

        return MemoryLink(_settings(url, settings), clock)
    from holdfast.topologies.embedded.directory import Directory

    return Directory(_settings(url, settings), clock)
