"""Scopes and guards: one authorization check for every protocol.

Every method and route declares the one scope that it needs; one that declares none cannot be registered. A guard turns
the token of a request into a `Caller`, or refuses it.
"""

from collections.abc import Callable
from enum import Enum
from typing import Protocol

import msgspec

from holdfast.errors import HoldfastError, PermissionDeniedError


class Scope(Enum):
    """A permission of a caller; `ADMIN` includes the others."""

    SUBMIT = "submit"
    READ = "read"
    WORK = "work"
    ADMIN = "admin"


class OpenAccess(Enum):
    """Access without a scope."""

    #: Needs no token, such as probes. The value is part of the OpenAPI document.
    PUBLIC = "everybody"
    #: Needs a valid token with any scope; each call within a conversation is then checked by its own scope.
    CALLERS = "callers"


Right = Scope | OpenAccess


class Caller(msgspec.Struct, frozen=True):
    """An admitted caller."""

    #: The name of its token; its address on a server without tokens.
    name: str
    scopes: frozenset[Scope]

    def may(self, scope: Scope) -> bool:
        """Whether the caller has this scope."""
        return scope in self.scopes or Scope.ADMIN in self.scopes

    def require(self, scope: Scope) -> None:
        """Raises `PermissionDeniedError` if the caller lacks this scope."""
        if not self.may(scope):
            raise PermissionDeniedError(
                f"the token {self.name!r} lacks a permission: this request needs the scope {scope.value}",
                reason="SCOPE_MISSING",
                details={"scope": scope.value},
            )


class CallerSession(Protocol):
    """A caller that was admitted for the length of a conversation or a stream."""

    @property
    def caller(self) -> Caller:
        """The admitted caller."""
        ...

    def admit(self, scope: Scope) -> Caller:
        """Checks one call within the session; raises the same errors as `Guard.admit`."""
        ...

    def leave(self) -> None:
        """Ends the session; `ended` is not called any more."""
        ...


#: Called with the reason when a session may not continue: the token was revoked or has expired.
Ended = Callable[[HoldfastError], None]


class Guard(Protocol):
    """Checks requests before their bodies are read."""

    def recognise(self, token: str, right: Right) -> Caller | None:
        """Checks the headers of a call before its body is received; None if no token is needed.

        Raises the errors of `admit` if the token is not sufficient. Does not count against the rate limit.
        """
        ...

    def charge(self, caller: Caller | None, token: str, peer: str, scope: Scope) -> None:
        """Counts one call of a recognised caller; raises the errors of `admit` if it is no longer permitted."""
        ...

    def admit(self, token: str, peer: str, scope: Scope) -> Caller:
        """Admits a caller for one call.

        Raises `UnauthenticatedError` if a token is needed and none or an invalid one is given, `PermissionDeniedError`
        without the scope, and `ResourceExhaustedError` over the rate limit.
        """
        ...

    def enter(self, token: str, peer: str, right: Right, ended: Ended) -> CallerSession:
        """Admits a caller for a session, with the same errors; calls `ended` if the permission is lost later."""
        ...


ALL_SCOPES = frozenset(Scope)


class OpenGuard:
    """Admits every caller with every scope, for servers that are protected by other means."""

    def recognise(self, token: str, right: Right) -> None:
        """Accepts every token."""

    def charge(self, caller: Caller | None, token: str, peer: str, scope: Scope) -> None:
        """Counts nothing."""

    def admit(self, token: str, peer: str, scope: Scope) -> Caller:
        """Admits the caller with all scopes."""
        del token, scope
        return Caller(peer, ALL_SCOPES)

    def enter(self, token: str, peer: str, right: Right, ended: Ended) -> CallerSession:
        """Admits the caller with all scopes, until it leaves."""
        del token, right, ended
        return _OpenCallerSession(Caller(peer, ALL_SCOPES))


class _OpenCallerSession:
    """A session that only the caller ends."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller

    def admit(self, scope: Scope) -> Caller:
        """Permits every call."""
        del scope
        return self.caller

    def leave(self) -> None:
        """Does nothing: an open guard does not track visits."""
