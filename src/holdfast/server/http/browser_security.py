"""What protects a server from pages of others: names, cookies, where a request comes from, and what answers forbid.

A browser shows its token in a cookie that no script can read. What changes something needs a header beside it that no
foreign page can send, and must not come from one. The name in `Host` must be one that this server goes by: whoever
points a name of their own at it gets nothing.
"""

from collections.abc import Iterable

from holdfast.errors import InvalidArgumentError, PermissionDeniedError, UnauthenticatedError
from holdfast.server.http.host_names import HostNames
from holdfast.server.http.request import Head, Headers
from holdfast.server.http.routing import Route

#: A page of another origin would have to ask before it sends this one, and is not allowed to.
OWN_HEADER = b"x-holdfast-request"
_COOKIE = "holdfast"
#: A browser takes this name only over TLS, for this host alone, from this host itself.
_SECURE_COOKIE = "__Host-holdfast"
_COOKIE_S = 30 * 86_400
_BEARER = "bearer "
_HARMLESS = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_SITE = frozenset({b"same-origin", b"none"})
#: Probes come from machines that know no name of this one, and learn nothing.
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


class BrowserShield:
    """The shield of a server that people open in browsers."""

    def __init__(self, host: str, allowed_hosts: Iterable[str] = ()) -> None:
        """`host` is the address that it listens on; names come without ports, and `*` stands for all."""
        self._names = HostNames(host, allowed_hosts)

    def check(self, head: Head, route: Route) -> None:
        """`PermissionDeniedError` for what another page would send, `InvalidArgumentError` for what is ambiguous."""
        said = _said(head)
        if route.path not in _PROBES:
            self._names.check(said.get(b"host", b""))
        if head.method not in _HARMLESS and b"authorization" not in said:
            _check_origin(said, has_cookie=bool(_cookie(said, is_secure=head.is_secure)))

    def token(self, head: Head) -> str:
        """That of `Authorization: Bearer ...`; only without that header, the one in the cookie."""
        said = _said(head)
        given = said.get(b"authorization")
        if given is None:
            return _cookie(said, is_secure=head.is_secure)
        text = given.decode("latin-1")
        return text[len(_BEARER) :].strip() if text[: len(_BEARER)].lower() == _BEARER else ""

    def headers(self) -> Headers:
        """What no browser should guess, keep, frame or load from elsewhere."""
        return _HEADERS


def _said(head: Head) -> dict[bytes, bytes]:
    """The headers that matter; `InvalidArgumentError` for one that is said twice, because others may read the other."""
    said: dict[bytes, bytes] = {}
    for name, value in head.headers:
        if name in said and name in _ONCE:
            raise InvalidArgumentError(f"expected {name.decode()} to be said once, got it twice", reason="HEADER_TWICE")
        said[name] = value
    return said


def _check_origin(said: dict[bytes, bytes], *, has_cookie: bool) -> None:
    origin, site = said.get(b"origin"), said.get(b"sec-fetch-site")
    is_foreign = origin is not None and origin.partition(b"://")[2] != said.get(b"host")
    if is_foreign or (site is not None and site not in _OWN_SITE):
        raise PermissionDeniedError("a page of another site may not change anything here", reason="CROSS_SITE")
    if has_cookie and OWN_HEADER not in said:
        message = f"expected the header {OWN_HEADER.decode()} beside the cookie, because this changes something"
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
    """The header that makes a browser keep the token, or forget it."""
    name = _SECURE_COOKIE if head.is_secure else _COOKIE
    lasting = f"Max-Age={_COOKIE_S if token else 0}"
    secure = "; Secure" if head.is_secure else ""
    return b"set-cookie", f"{name}={token}; Path=/; HttpOnly; SameSite=Strict; {lasting}{secure}".encode("ascii")
