"""Protection against requests from foreign web pages: host names, cookies, origins and security headers.

A browser sends its token in a cookie that scripts cannot read. A request that changes something also needs a header
that a foreign page cannot send, and must not come from a foreign origin. The name in `Host` must be one of the
server's names; this prevents DNS rebinding.
"""

import ipaddress
import re
from collections.abc import Iterable

from holdfast.errors import InvalidArgumentError, PermissionDeniedError, UnauthenticatedError
from holdfast.server.http.request import Head, Headers
from holdfast.server.http.routing import Route

#: A page of another origin can send this header only after a CORS preflight, which is not allowed here.
OWN_HEADER = b"x-holdfast-request"
_COOKIE = "holdfast"
#: With this prefix a browser accepts the cookie only over TLS, from this host and for this host.
_SECURE_COOKIE = "__Host-holdfast"
_COOKIE_S = 30 * 86_400
_BEARER = "bearer "
_HARMLESS = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_SITE = frozenset({b"same-origin", b"none"})
#: Probes come from machines that may not know the server's name, and their responses reveal nothing.
_PROBES = frozenset({"/livez", "/readyz"})
_ONCE = (
    b"host",
    b"authorization",
    b"cookie",
    b"origin",
    b"content-type",
    b"content-encoding",
    b"idempotency-key",
    b"last-event-id",
)

_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    b"form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_HEADERS: Headers = [
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", _POLICY),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
]


#: A host with or without a port; an IPv6 address is in brackets.
_HOST = re.compile(r"(?:\[(?P<address>[^\]]+)\]|(?P<name>[^:\[\]]*))(?::[0-9]*)?")


class HostNames:
    """The accepted host names of one server."""

    def __init__(self, host: str, allowed_hosts: Iterable[str] = ()) -> None:
        """`host` is the address that the server listens on; names have no ports, and `*` allows every name."""
        allowed = {name.strip().lower() for name in allowed_hosts if name.strip()}
        self._takes_all = "*" in allowed
        self._takes_addresses = _is_unspecified(host)
        self._names = frozenset({"localhost", host.lower(), *(name.strip("[]") for name in allowed)})

    def check(self, given: bytes) -> None:
        """Raises `PermissionDeniedError` unless the value of a `Host` header is one of the names."""
        name = _name_of(given.decode("latin-1").lower())
        if self._takes_all or name in self._names or self._is_address(name):
            return
        shown = given[:80].decode("latin-1")
        raise PermissionDeniedError(
            f"Host must be a name of this server, got {shown!r}; allow other names with --allowed-hosts",
            reason="HOST_UNKNOWN",
        )

    def _is_address(self, name: str) -> bool:
        """Whether this is an accepted IP address; unlike a name, an address cannot be pointed at another server."""
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
    """Returns the host without its port; an IPv6 address without its brackets."""
    found = _HOST.fullmatch(host)
    return (found["address"] or found["name"]) if found is not None else ""


class BrowserShield:
    """The shield of a server that is opened in browsers."""

    def __init__(self, host: str, allowed_hosts: Iterable[str] = ()) -> None:
        """`host` is the address that the server listens on; names have no ports, and `*` allows every name."""
        self._names = HostNames(host, allowed_hosts)

    def check(self, head: Head, route: Route) -> None:
        """Raises `PermissionDeniedError` for a foreign page's request, `InvalidArgumentError` for a repeated header."""
        said = _said(head)
        if route.path not in _PROBES:
            self._names.check(said.get(b"host", b""))
        if head.method not in _HARMLESS and b"authorization" not in said:
            _check_origin(said, has_cookie=bool(_cookie(said, is_secure=head.is_secure)))

    def token(self, head: Head) -> str:
        """Returns the token of `Authorization: Bearer ...`; only without that header, the one in the cookie."""
        said = _said(head)
        given = said.get(b"authorization")
        if given is None:
            return _cookie(said, is_secure=head.is_secure)
        text = given.decode("latin-1")
        return text[len(_BEARER) :].strip() if text[: len(_BEARER)].lower() == _BEARER else ""

    def headers(self) -> Headers:
        """Returns headers that forbid browsers to guess types, to frame pages and to load content from elsewhere."""
        return _HEADERS


def _said(head: Head) -> dict[bytes, bytes]:
    """Returns the headers by name; `InvalidArgumentError` if one of `_ONCE` is repeated, because it is ambiguous."""
    said: dict[bytes, bytes] = {}
    for name, value in head.headers:
        if name in said and name in _ONCE:
            raise InvalidArgumentError(f"{name.decode()} must be sent once, got it twice", reason="HEADER_TWICE")
        said[name] = value
    return said


def _check_origin(said: dict[bytes, bytes], *, has_cookie: bool) -> None:
    origin, site = said.get(b"origin"), said.get(b"sec-fetch-site")
    is_foreign = origin is not None and origin.partition(b"://")[2] != said.get(b"host")
    if is_foreign or (site is not None and site not in _OWN_SITE):
        raise PermissionDeniedError(
            "a page of another site may not change anything on this server", reason="CROSS_SITE"
        )
    if has_cookie and OWN_HEADER not in said:
        message = f"expected the header {OWN_HEADER.decode()} with the cookie, because the request changes something"
        raise PermissionDeniedError(message, reason="CSRF_HEADER_MISSING")


def _cookie(said: dict[bytes, bytes], *, is_secure: bool) -> str:
    given = said.get(b"cookie")
    if given is None:
        return ""
    wanted = _SECURE_COOKIE if is_secure else _COOKIE
    pairs = [pair.strip().partition("=") for pair in given.decode("latin-1").split(";")]
    found = [value for name, _, value in pairs if name == wanted]
    if len(found) > 1:
        raise UnauthenticatedError("expected one cookie with a token, got several", reason="TOKEN_AMBIGUOUS")
    return found[0].strip('"') if found else ""


def cookie_of(token: str, head: Head) -> tuple[bytes, bytes]:
    """Returns the header that makes a browser store the token, or delete it if the token is empty."""
    name = _SECURE_COOKIE if head.is_secure else _COOKIE
    lasting = f"Max-Age={_COOKIE_S if token else 0}"
    secure = "; Secure" if head.is_secure else ""
    return b"set-cookie", f"{name}={token}; Path=/; HttpOnly; SameSite=Strict; {lasting}{secure}".encode("ascii")
