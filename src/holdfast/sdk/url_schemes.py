"""The table of URL schemes: where `Holdfast(url)` and `--connect` find jobs.

A URL may carry the server's token: `holdfast://TOKEN@host:port`. `holdfasts://` uses TLS. Several addresses with commas
are all nodes of one server. A URL without a scheme is the path of a directory.

A row names modules as text, so that a program loads the modules of its own URL alone.
"""

import os
from collections.abc import Mapping
from pkgutil import resolve_name
from typing import TYPE_CHECKING, NamedTuple

from holdfast.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.client.link import Link
    from holdfast.ledger.ports import Clock

MEMORY = "memory://"
_CONNECT = "HOLDFAST_CONNECT"
_DIRECTORY = "./holdfast-data"


class UrlScheme(NamedTuple):
    """One kind of URL. `opener` and `place` are `module:function`."""

    prefix: str
    #: Its form in error messages; empty if another row covers it.
    form: str
    #: Takes the URL, the settings, the clock and the token of an app. Raises an error if they do not fit, and returns
    #: the function that opens the link later, on the portal's loop.
    opener: str
    #: Takes the URL, and returns the `DirectBackend` of commands that need no server of ours; empty: they reach a
    #: server.
    place: str = ""


_PATH = UrlScheme("", "a path", "holdfast.topologies.embedded.opener:opener")
SCHEMES = (
    UrlScheme(MEMORY, MEMORY, "holdfast.topologies.embedded.opener:opener"),
    UrlScheme("holdfast://", "holdfast://host:port", "holdfast.client.server_link:opener"),
    UrlScheme("holdfasts://", "", "holdfast.client.server_link:opener"),
    UrlScheme(
        "zk://",
        "zk://host:port",
        "holdfast.topologies.zookeeper.ensemble_url:opener",
        "holdfast.topologies.zookeeper.ensemble_url:ensemble_of",
    ),
)


def default_url() -> str:
    """The URL of an app that is made without one: HOLDFAST_CONNECT, as for commands and workers, or a directory."""
    named = os.environ.get(_CONNECT, "")
    if not named:
        return _DIRECTORY
    from holdfast.settings import addresses_of

    return f"holdfast://{named}" if "://" not in named and addresses_of(named) else named


def scheme_of(url: str) -> UrlScheme | None:
    """Returns the row of a URL; None for an unknown scheme."""
    known = next((row for row in SCHEMES if url.startswith(row.prefix)), None)
    if known is not None and known.prefix == MEMORY != url:
        return None
    return known or (None if "://" in url else _PATH)


def is_direct(url: str) -> bool:
    """Whether commands reach the jobs of a URL without a server of ours."""
    scheme = scheme_of(url)
    return scheme is not None and bool(scheme.place)


def opener(url: str, settings: Mapping[str, object], clock: "Clock | None", token: str = "") -> "Callable[[], Link]":
    """Returns a function that opens the link, on the portal's loop. Raises now for a wrong URL or setting."""
    scheme = scheme_of(url)
    if scheme is None:
        raise _unknown(url)
    open_later: Callable[[], Link] = resolve_name(scheme.opener)(url, settings, clock, token)
    return open_later


def _unknown(url: str) -> InvalidArgumentError:
    from holdfast.settings import masked

    *forms, last = [row.form for row in (_PATH, *SCHEMES) if row.form]
    message = f"the URL must be {', '.join(forms)} or {last}, got {masked(url)!r}"
    return InvalidArgumentError(message, reason="URL_INVALID")


def without_secrets(url: str) -> str:
    """The URL with its secrets masked."""
    if "@" not in url:
        return url
    from holdfast.settings import masked

    return masked(url)
