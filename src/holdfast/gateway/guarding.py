"""Who may do what: one check for every protocol.

Every method and every route names the one scope that it needs; what names none is refused. A guard turns what a caller
shows into a `Caller`, or refuses it.
"""

from enum import Enum
from typing import Protocol

import msgspec


class Scope(Enum):
    """What a caller may do; `ADMIN` contains the others."""

    SUBMIT = "submit"
    READ = "read"
    WORK = "work"
    ADMIN = "admin"


class Caller(msgspec.Struct, frozen=True):
    """Somebody who was let in."""

    #: The name of its token, or where it comes from.
    name: str
    scopes: frozenset[Scope]

    def may(self, scope: Scope) -> bool:
        """Whether this is within its rights."""
        return scope in self.scopes or Scope.ADMIN in self.scopes


class Guard(Protocol):
    """Asked before anything is read of a request."""

    def admit(self, token: str, peer: str, scope: Scope) -> Caller:
        """Lets somebody in for one call.

        `UnauthenticatedError` without a good token where one is needed, `PermissionDeniedError` without the scope,
        `ResourceExhaustedError` over the budget.
        """
        ...


class OpenGuard:
    """Lets everybody do everything: for loopback, where there are no tokens."""

    def admit(self, token: str, peer: str, scope: Scope) -> Caller:
        """Whoever it is."""
        del token, scope
        return Caller(peer, frozenset(Scope))
