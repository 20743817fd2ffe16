"""The guard of a server: tokens as its file has them now, and a budget for each caller.

Without a file of tokens everybody may do everything: such a server listens on loopback, or was told that something else
protects it. Once there is a file, it is never open again as long as it runs: a file that goes away lets nobody in, and
one that cannot be read changes nothing. A change is noticed within a second, by those who stay as well; a new token is
known as soon as somebody shows it.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

from holdfast.clock import system_clock
from holdfast.errors import HoldfastError, UnauthenticatedError
from holdfast.observe.logs import get_logger
from holdfast.server.auth import tokens
from holdfast.server.auth.permissions import ALL_SCOPES, Caller, Ended, Open, Right, Scope
from holdfast.server.auth.rate_limits import Budgets
from holdfast.server.auth.tokens import Token, TokenTable

_LOOK_S = 0.5
_Seen = tuple[int, int, int]


class TokenGuard:
    """Made, it knows the tokens (`FailedPreconditionError` if they cannot be used). `start`, then `stop`."""

    def __init__(self, path: Path | None, budgets: Budgets, clock_ms: Callable[[], int] | None = None) -> None:
        """Without a path there are no tokens."""
        self._path = path
        self._budgets = budgets
        self._clock_ms = clock_ms or system_clock().wall_ms
        self._seen: _Seen | None = None
        self._table: TokenTable | None = None
        self._callers: dict[str, Caller] = {}
        self._visits: set[_TokenVisit] = set()
        self._looking: asyncio.TimerHandle | None = None
        if path is not None:
            self._seen = _seen(path)
            self._know(tokens.read(path))

    @property
    def is_open(self) -> bool:
        """Whether nobody needs a token."""
        return self._table is None

    def start(self) -> None:
        """Looks for changes from now on."""
        self.stop()
        self._looking = asyncio.get_running_loop().call_later(_LOOK_S, self._look_again)

    def stop(self) -> None:
        """No more."""
        if self._looking is not None:
            self._looking.cancel()

    def _look_again(self) -> None:
        self.look()
        self.start()

    def look(self) -> None:
        """Takes in what has changed: the file, and the time."""
        self._budgets.sweep()
        self._read_again()
        for visit in tuple(self._visits):
            visit.renew()

    def _read_again(self) -> bool:
        """Whether the file had changed."""
        seen = _seen(self._path) if self._path is not None else None
        if self._path is None or seen == self._seen:
            return False
        self._seen = seen
        try:
            self._know(tokens.read(self._path))
        except HoldfastError as error:
            get_logger().error("tokens_unusable", message=f"{error.message}; those known before stay in force")
        return True

    def _know(self, found: list[Token] | None) -> None:
        if found is not None:
            self._table = TokenTable(found)
            self._callers = {token.name: Caller(token.name, frozenset(token.scopes)) for token in found}
        elif self._table is not None:
            self._table, self._callers = TokenTable([]), {}
        if found is not None:
            get_logger().info("tokens_read", tokens=len(found))

    # -- who asks

    def recognise(self, token: str, right: Right) -> Caller | None:
        """Judges the headers of a call, before its body is received."""
        if self._table is None or right is Open.EVERYBODY:
            return None
        caller = self._callers[self._found(tokens.hash_of(token)).name]
        if isinstance(right, Scope):
            caller.require(right)
        return caller

    def charge(self, caller: Caller | None, token: str, peer: str, scope: Scope) -> None:
        """Counts one call, once its body has come."""
        if caller is not None and self._callers.get(caller.name) is caller:
            self._found(tokens.hash_of(token))  # it may have run out since
            self._budgets.spend(caller.name, scope)
        else:
            self.admit(token, peer, scope)  # there were no tokens when it came, or they have changed since

    def admit(self, token: str, peer: str, scope: Scope) -> Caller:
        """Lets somebody in for one call."""
        caller = self.caller(tokens.hash_of(token) if self._table is not None else b"", peer, scope)
        self._budgets.spend(caller.name, scope)
        return caller

    def enter(self, token: str, peer: str, right: Right, ended: Ended) -> "_TokenVisit":
        """Lets somebody in to stay."""
        scope = right if isinstance(right, Scope) else None
        visit = _TokenVisit(self, tokens.hash_of(token), peer, scope, ended)
        self._budgets.spend(visit.caller.name, scope)
        self._visits.add(visit)
        return visit

    def caller(self, digest: bytes, peer: str, scope: Scope | None) -> Caller:
        """Who shows this; raises unless it may do this now. Whoever is nobody is counted by where it comes from."""
        if self._table is None:
            return Caller(place_of(peer), ALL_SCOPES)
        try:
            name = self._found(digest).name
        except UnauthenticatedError:
            self._budgets.spend(place_of(peer), scope)
            raise
        caller = self._callers[name]
        if scope is not None:
            caller.require(scope)
        return caller

    def _found(self, digest: bytes) -> Token:
        assert self._table is not None
        if digest == _NOTHING:
            message = "expected a token, got none: set HOLDFAST_TOKEN, or over HTTP send Authorization: Bearer TOKEN"
            raise UnauthenticatedError(message, reason=_MISSING)
        token = self._table.find(digest)
        if token is None and self._read_again():
            token = self._table.find(digest)
        if token is None:
            raise UnauthenticatedError("the token is not one that is known here", reason="TOKEN_UNKNOWN")
        if token.is_over(self._clock_ms()):
            raise UnauthenticatedError("the token has run out; ask for another one", reason="TOKEN_EXPIRED")
        return token

    def spend(self, name: str, scope: Scope) -> None:
        """Counts one call."""
        self._budgets.spend(name, scope)

    def left(self, visit: "_TokenVisit") -> None:
        """A visit is over."""
        self._visits.discard(visit)


_MISSING = "TOKEN_MISSING"
_NOTHING = tokens.hash_of("")


class _TokenVisit:
    """Knows the hash of what was shown, and looks it up again whenever something has changed."""

    def __init__(self, guard: TokenGuard, digest: bytes, peer: str, scope: Scope | None, ended: Ended) -> None:
        self._guard = guard
        self._digest = digest
        self._peer = peer
        self._scope = scope
        self._ended = ended
        self._error: HoldfastError | None = None
        self.caller = guard.caller(digest, peer, scope)

    def admit(self, scope: Scope) -> Caller:
        """Lets one call of it in."""
        if self._error is not None:
            raise self._error
        caller = self.caller
        caller.require(scope)
        self._guard.spend(caller.name, scope)
        return caller

    def renew(self) -> None:
        """Looks whether it may go on; once it may not, it never may."""
        try:
            self.caller = self._guard.caller(self._digest, self._peer, self._scope)
        except HoldfastError as error:
            self._error = error
            self.leave()
            self._ended(error)

    def leave(self) -> None:
        """Nobody watches over it any more."""
        self._guard.left(self)


def _seen(path: Path) -> _Seen | None:
    """What tells one version of the file from another."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def place_of(peer: str) -> str:
    """The address of a peer without its port, however the protocol writes it."""
    return peer.rpartition(":")[0].removeprefix("ipv4:").removeprefix("ipv6:") or peer
