"""`/api/v1/session`: a browser shows its token once, and keeps it in a cookie from then on."""

import re
from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast.errors import UnauthenticatedError
from holdfast.server.auth.permissions import Caller, Guard, Open
from holdfast.server.auth.tokens import TOKEN_CHARS_MAX
from holdfast.server.http.browser_security import cookie_of
from holdfast.server.http.request import Answer, Asked, answer
from holdfast.server.http.request_shield import Shield
from holdfast.server.http.routing import EVERYBODY, Route

_PATH = "/api/v1/session"
_TOKEN = re.compile(r"[A-Za-z0-9_-]+")


class Login(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a person types in."""

    token: Annotated[str, Meta(min_length=1, max_length=TOKEN_CHARS_MAX)]


class Session(msgspec.Struct, frozen=True):
    """Whom the server takes this browser for."""

    name: str
    scopes: list[str]


class SessionRoutes:
    """Logging in and out."""

    def __init__(self, guard: Guard, shield: Shield) -> None:
        self._guard = guard
        self._shield = shield

    async def log_in(self, asked: Asked) -> Answer:
        """Has the browser keep the token, if it is good."""
        body: Login = asked.content
        if not _TOKEN.fullmatch(body.token):
            raise UnauthenticatedError("the token is not one that is known here", reason="TOKEN_UNKNOWN")
        caller = self._caller(body.token, asked)
        return answer(_session(caller), headers=[cookie_of(body.token, asked.head)])

    async def look(self, asked: Asked) -> Answer:
        """Who asks."""
        return answer(_session(self._caller(self._shield.token(asked.head), asked)))

    async def log_out(self, asked: Asked) -> Answer:
        """Has the browser forget the token."""
        return Answer(204, headers=[cookie_of("", asked.head)])

    def _caller(self, token: str, asked: Asked) -> Caller:
        visit = self._guard.enter(token, asked.head.peer, Open.CALLERS, lambda _: None)
        visit.leave()
        return visit.caller


def _session(caller: Caller) -> Session:
    return Session(caller.name, sorted(scope.value for scope in caller.scopes))


def routes(sessions: SessionRoutes) -> list[Route]:
    """What this part of the table says. A good token is asked for by the handlers."""
    return [
        Route(
            method="POST",
            path=_PATH,
            scope=EVERYBODY,
            handler=sessions.log_in,
            summary="Keep a token in a cookie",
            tag="session",
            body=Login,
            answers={200: Session},
            problems=(413, 415),
            examples={"a token": {"token": "hf_as-it-was-shown-when-it-was-made"}},
        ),
        Route(
            method="GET",
            path=_PATH,
            scope=EVERYBODY,
            handler=sessions.look,
            summary="Whose token this is",
            tag="session",
            answers={200: Session},
        ),
        Route(
            method="DELETE",
            path=_PATH,
            scope=EVERYBODY,
            handler=sessions.log_out,
            summary="Forget the token",
            tag="session",
            answers={204: None},
        ),
    ]
