"""What a server checks of every request beside its scope, and says with every answer: one place for all of it."""

from typing import Protocol

from holdfast.server.http.request import Head, Headers
from holdfast.server.http.routing import Route

_BEARER = "bearer "


class Shield(Protocol):
    """Asked before the guard, with nothing read of a request but its head."""

    def check(self, head: Head, route: Route) -> None:
        """Lets a request pass; raises a `HoldfastError` for one that nobody should have sent."""
        ...

    def token(self, head: Head) -> str:
        """What the caller shows; nothing, if it shows nothing."""
        ...

    def headers(self) -> Headers:
        """What every answer says beside its own."""
        ...


class PlainShield:
    """Lets everything pass; tokens come in the Authorization header alone."""

    def check(self, head: Head, route: Route) -> None:
        """Nothing is wrong with it."""

    def token(self, head: Head) -> str:
        """The token of `Authorization: Bearer ...`."""
        given = head.header(b"authorization")
        return given[len(_BEARER) :].strip() if given[: len(_BEARER)].lower() == _BEARER else ""

    def headers(self) -> Headers:
        """What no browser should guess."""
        return _HEADERS


_HEADERS: Headers = [(b"x-content-type-options", b"nosniff")]
