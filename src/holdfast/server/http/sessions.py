"""`/api/v1/session`: a browser sends its token once, and then stores it in a cookie."""

import re
from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast.errors import UnauthenticatedError
from holdfast.server.auth.permissions import Caller, Guard, OpenAccess
from holdfast.server.auth.tokens import TOKEN_CHARS_MAX
from holdfast.server.http.browser_security import cookie_of
from holdfast.server.http.request import AdmittedRequest, HttpResponse, answer
from holdfast.server.http.request_shield import Shield
from holdfast.server.http.routing import PUBLIC, Route

_PATH = "/api/v1/session"
_TOKEN = re.compile(r"[A-Za-z0-9_-]+")


class Login(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The token that a person enters."""

    token: Annotated[str, Meta(min_length=1, max_length=TOKEN_CHARS_MAX)]


class SessionResource(msgspec.Struct, frozen=True):
    """The name and the scopes of the browser's token."""

    name: str
    scopes: list[str]


class SessionRoutes:
    """Login and logout of browsers."""

    def __init__(self, guard: Guard, shield: Shield) -> None:
        self._guard = guard
        self._shield = shield

    async def log_in(self, request: AdmittedRequest) -> HttpResponse:
        """Makes the browser store the token, if it is valid."""
        body: Login = request.content
        if not _TOKEN.fullmatch(body.token):
            raise UnauthenticatedError("the token is unknown to this server", reason="TOKEN_UNKNOWN")
        caller = self._caller(body.token, request)
        return answer(_session(caller), headers=[cookie_of(body.token, request.head)])

    async def look(self, request: AdmittedRequest) -> HttpResponse:
        """Returns the name and the scopes of the caller's token."""
        return answer(_session(self._caller(self._shield.token(request.head), request)))

    async def log_out(self, request: AdmittedRequest) -> HttpResponse:
        """Makes the browser delete the token."""
        return HttpResponse(204, headers=[cookie_of("", request.head)])

    def _caller(self, token: str, request: AdmittedRequest) -> Caller:
        session = self._guard.enter(token, request.head.peer, OpenAccess.CALLERS, lambda _: None)
        session.leave()
        return session.caller


def _session(caller: Caller) -> SessionResource:
    return SessionResource(caller.name, sorted(scope.value for scope in caller.scopes))


def routes(sessions: SessionRoutes) -> list[Route]:
    """Returns the routes of this module; their handlers check the token themselves."""
    return [
        Route(
            method="POST",
            path=_PATH,
            scope=PUBLIC,
            handler=sessions.log_in,
            summary="Log in: store a token in a cookie",
            tag="session",
            body=Login,
            answers={200: SessionResource},
            problems=(413, 415),
            examples={"a token": {"token": "hf_as-it-was-shown-when-it-was-made"}},
        ),
        Route(
            method="GET",
            path=_PATH,
            scope=PUBLIC,
            handler=sessions.look,
            summary="Get the name and the scopes of the token",
            tag="session",
            answers={200: SessionResource},
        ),
        Route(
            method="DELETE",
            path=_PATH,
            scope=PUBLIC,
            handler=sessions.log_out,
            summary="Log out: delete the cookie",
            tag="session",
            answers={204: None},
        ),
    ]
