"""The shield against foreign web pages: host names, cookies, origins and response headers."""

import pytest

from holdfast.errors import HoldfastError
from holdfast.server.auth.permissions import Scope
from holdfast.server.http.browser_security import BrowserShield, cookie_of
from holdfast.server.http.request import AdmittedRequest, Head, HttpResponse
from holdfast.server.http.routing import PUBLIC, Route

OWN = BrowserShield("127.0.0.1")


async def nothing(_: AdmittedRequest) -> HttpResponse:
    return HttpResponse(204)


def route(path: str = "/api/v1/jobs", scope: Scope | None = Scope.SUBMIT) -> Route:
    return Route(method="POST", path=path, scope=scope or PUBLIC, handler=nothing, summary="")


def head(
    *headers: tuple[str, str], method: str = "POST", host: str = "127.0.0.1:8080", is_secure: bool = False
) -> Head:
    """Returns a request with this Host header, unless it is empty, and these headers."""
    pairs = [*([("host", host)] if host else []), *headers]
    raw = [(name.encode(), value.encode("latin-1")) for name, value in pairs]
    return Head(method, "/api/v1/jobs", raw, "127.0.0.1:9", is_secure)


def reason(request: Head, shield: BrowserShield = OWN, to: Route | None = None) -> str:
    """Returns the reason of the refusal, empty if the request passes."""
    try:
        shield.check(request, to or route())
        shield.token(request)
    except HoldfastError as error:
        return error.reason
    return ""


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:8080", "localhost:1", "LOCALHOST", "[::1]:8080", "127.9.9.9", "[::1]"]
)
def test_names_of_this_machine_are_known(host: str) -> None:
    """Names of the local machine are accepted, with and without a port."""
    assert reason(head(host=host)) == ""


@pytest.mark.parametrize(
    "host",
    [
        *("", "evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "192.0.2.7"),
        *(
            "localhost.",
            "local host",
            "[::2]",
            "[::1",
            "evil@localhost",
            "localhost@evil",
            "\xe9",
            "0x7f.1",
            "[]",
            "[::1]x",
        ),
    ],
)
def test_names_of_others_are_refused(host: str) -> None:
    """A host name that is not the server's own is refused, even if it resolves to this machine."""
    assert reason(head(host=host, method="GET")) == "HOST_UNKNOWN"


def test_bound_address_and_allowed_names_are_known() -> None:
    """The bound address and the allowed names are accepted, and a server on all interfaces accepts every address."""
    named = BrowserShield("192.0.2.7", ["jobs.example", " Other.Example "])
    for host in ("192.0.2.7:8080", "jobs.example", "JOBS.example:443", "other.example"):
        assert reason(head(host=host), named) == ""
    assert reason(head(host="192.0.2.8"), named) == "HOST_UNKNOWN"
    everywhere = BrowserShield("0.0.0.0")  # noqa: S104 - an address to listen on
    assert reason(head(host="192.0.2.8"), everywhere) == ""
    assert reason(head(host="evil.example"), everywhere) == "HOST_UNKNOWN"
    assert reason(head(host="evil.example"), BrowserShield("127.0.0.1", ["*"])) == ""


def test_probes_are_answered_under_any_name() -> None:
    """A health probe is answered under any host name."""
    assert reason(head(host="pod.cluster", method="GET"), to=route("/livez", None)) == ""


@pytest.mark.parametrize("name", ["host", "authorization", "cookie", "origin", "content-type", "idempotency-key"])
def test_header_that_is_said_twice_is_refused(name: str) -> None:
    """A repeated header is refused, because a proxy may have read the other value."""
    value = "127.0.0.1:8080" if name == "host" else "x"
    twice = [(name, value), (name, value)][: 1 if name == "host" else 2]
    assert reason(head(*twice)) == "HEADER_TWICE"


def test_token_comes_from_the_header_before_the_cookie() -> None:
    """The token of the Authorization header is used before that of the cookie, even if it is invalid."""
    cookie = ("cookie", "a=b; holdfast=good; c=d")
    assert OWN.token(head(cookie)) == "good"
    assert OWN.token(head(cookie, ("authorization", "Bearer other"))) == "other"
    assert OWN.token(head(cookie, ("authorization", "bEaReR   other  "))) == "other"
    assert OWN.token(head(cookie, ("authorization", "Basic Z29vZA=="))) == ""
    assert OWN.token(head(("cookie", "xholdfast=good; holdfast.x=good"))) == ""
    assert OWN.token(head(("cookie", "holdfast=good"), is_secure=True)) == ""
    assert OWN.token(head(("cookie", "__Host-holdfast=good"), is_secure=True)) == "good"


def test_two_cookies_with_tokens_are_refused() -> None:
    """Two cookies with tokens are refused, because one of them may have been planted."""
    assert reason(head(("cookie", "holdfast=a; holdfast=b"), ("x-holdfast-request", "1"))) == "TOKEN_AMBIGUOUS"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ((), ""),
        ((("origin", "http://127.0.0.1:8080"),), ""),
        ((("origin", "https://127.0.0.1:8080"),), ""),
        ((("origin", "http://127.0.0.1:8081"),), "CROSS_SITE"),
        ((("origin", "http://evil.example"),), "CROSS_SITE"),
        ((("origin", "null"),), "CROSS_SITE"),
        ((("origin", ""),), "CROSS_SITE"),
        ((("sec-fetch-site", "same-origin"),), ""),
        ((("sec-fetch-site", "none"),), ""),
        ((("sec-fetch-site", "cross-site"),), "CROSS_SITE"),
        ((("sec-fetch-site", "same-site"),), "CROSS_SITE"),
        ((("cookie", "holdfast=t"),), "CSRF_HEADER_MISSING"),
        ((("cookie", "holdfast=t"), ("x-holdfast-request", "1")), ""),
        ((("cookie", "holdfast=t"), ("x-holdfast-request", "1"), ("origin", "http://evil.example")), "CROSS_SITE"),
        ((("cookie", "other=t"),), ""),
        ((("authorization", "Bearer t"), ("origin", "http://evil.example")), ""),
    ],
)
def test_request_that_changes_data_must_come_from_the_own_origin(
    headers: tuple[tuple[str, str], ...], expected: str
) -> None:
    """A request that changes data is refused if it comes from a foreign page, and a GET is not."""
    assert reason(head(*headers)) == expected
    assert reason(head(*headers, method="DELETE")) == expected
    assert reason(head(*headers, method="GET")) == ""


def test_content_security_policy_allows_no_other_origin() -> None:
    """The content security policy allows nothing from other origins."""
    said = dict(OWN.headers())
    assert said[b"content-security-policy"].split(b"; ") == [
        b"default-src 'none'",
        b"script-src 'self'",
        b"style-src 'self'",
        b"img-src 'self' data:",
        b"connect-src 'self'",
        b"form-action 'self'",
        b"frame-ancestors 'none'",
        b"base-uri 'none'",
    ]
    assert said[b"x-content-type-options"] == b"nosniff"
    assert said[b"referrer-policy"] == b"no-referrer"


def test_cookie_is_for_this_host_and_no_script() -> None:
    """The cookie is hidden from scripts and bound to this host, and over TLS it is Secure."""
    plain = cookie_of("t", head())[1].decode()
    assert plain == "holdfast=t; Path=/; HttpOnly; SameSite=Strict; Max-Age=2592000"
    secure = cookie_of("t", head(is_secure=True))[1].decode()
    assert secure == "__Host-holdfast=t; Path=/; HttpOnly; SameSite=Strict; Max-Age=2592000; Secure"
    assert "Max-Age=0" in cookie_of("", head())[1].decode()
