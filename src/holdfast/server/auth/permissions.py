"""Who may do what: one check for every protocol.

Every method and every route names the one scope that it needs; what names none is refused. A guard turns what a caller
shows into a `Caller`, or refuses it.
"""

from collections.abc import Callable
from enum import Enum
from typing import Protocol

import msgspec

from holdfast.errors import HoldfastError, PermissionDeniedError


class Scope(Enum):
    """What a caller may do; `ADMIN` contains the others."""

    SUBMIT = "submit"
    READ = "read"
    WORK = "work"
    ADMIN = "admin"


class Open(Enum):
    """Instead of a scope."""

    #: Whoever asks: whether the server lives.
    EVERYBODY = "everybody"
    #: Whoever would be let in for anything; what is asked then is checked by the scope of its own.
    CALLERS = "callers"


Right = Scope | Open


class Caller(msgspec.Struct, frozen=True):
    """Somebody who was let in."""

    #: The name of its token, or where it comes from.
    name: str
    scopes: frozenset[Scope]

    def may(self, scope: Scope) -> bool:
        """Whether this is within its rights."""
        return scope in self.scopes or Scope.ADMIN in self.scopes

    def require(self, scope: Scope) -> None:
        """`PermissionDeniedError` if it is not."""
        if not self.may(scope):
            raise PermissionDeniedError(
                f"the token {self.name!r} has no right to this: it needs the scope {scope.value}",
                reason="SCOPE_MISSING",
                details={"scope": scope.value},
            )


class Visit(Protocol):
    """Somebody who was let in and stays, for a conversation or a stream."""

    @property
    def caller(self) -> Caller:
        """Who it is."""
        ...

    def admit(self, scope: Scope) -> Caller:
        """The same for one call within it, with the same errors as `Guard.admit`."""
        ...

    def leave(self) -> None:
        """It is over; nothing more is told."""
        ...


#: Hears why a visit cannot go on: the token was revoked or has run out.
Ended = Callable[[HoldfastError], None]


class Guard(Protocol):
    """Asked before anything is read of a request."""

    def recognise(self, token: str, right: Right) -> Caller | None:
        """Judges the headers of a call, before its body is received; None where everybody may do everything.

        Raises as `admit` would where the token is not enough. Counts nothing.
        """
        ...

    def charge(self, caller: Caller | None, token: str, peer: str, scope: Scope) -> None:
        """Counts one call of somebody who was recognised with this token; raises as `admit` would if that is over."""
        ...

    def admit(self, token: str, peer: str, scope: Scope) -> Caller:
        """Lets somebody in for one call.

        `UnauthenticatedError` without a good token where one is needed, `PermissionDeniedError` without the scope,
        `ResourceExhaustedError` over the budget.
        """
        ...

    def enter(self, token: str, peer: str, right: Right, ended: Ended) -> Visit:
        """Lets somebody in to stay, with the same errors; `ended` hears of it when the right is lost later."""
        ...


ALL_SCOPES = frozenset(Scope)


class OpenGuard:
    """Lets everybody do everything: where something else protects the jobs."""

    def recognise(self, token: str, right: Right) -> None:
        """Every token is enough."""

    def charge(self, caller: Caller | None, token: str, peer: str, scope: Scope) -> None:
        """Nothing is counted."""

    def admit(self, token: str, peer: str, scope: Scope) -> Caller:
        """Whoever it is."""
        del token, scope
        return Caller(peer, ALL_SCOPES)

    def enter(self, token: str, peer: str, right: Right, ended: Ended) -> Visit:
        """For as long as it likes."""
        del token, right, ended
        return _OpenVisit(Caller(peer, ALL_SCOPES))


class _OpenVisit:
    """Goes on until it leaves."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller

    def admit(self, scope: Scope) -> Caller:
        """Everything is within its rights."""
        del scope
        return self.caller

    def leave(self) -> None:
        """Nobody was watching."""
