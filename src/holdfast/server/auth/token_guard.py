"""The token guard of a server: the tokens of its file, and a rate limit for each caller.

Without a token file every caller may do everything: such a server listens on loopback only, or runs with `--insecure`.
Once a token file was read, the server always requires tokens: if the file disappears, every token is refused, and a
file that cannot be read changes nothing. A change takes effect within a second, also for open streams; a new token is
accepted at its first use.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

from holdfast.clock import system_clock
from holdfast.errors import HoldfastError, UnauthenticatedError
from holdfast.observe.logs import get_logger
from holdfast.server.auth import tokens
from holdfast.server.auth.permissions import ALL_SCOPES, Caller, Ended, OpenAccess, Right, Scope
from holdfast.server.auth.rate_limits import Budgets
from holdfast.server.auth.tokens import Token, TokenTable

_LOOK_S = 0.5
_Seen = tuple[int, int, int]


class TokenGuard:
    """Checks tokens. The constructor raises `FailedPreconditionError` for an unusable file. `start`, then `stop`."""

    def __init__(self, path: Path | None, budgets: Budgets, clock_ms: Callable[[], int] | None = None) -> None:
        """Without a path callers need no token."""
        self._path = path
        self._budgets = budgets
        self._clock_ms = clock_ms or system_clock().wall_ms
        self._seen: _Seen | None = None
        self._table: TokenTable | None = None
        self._callers: dict[str, Caller] = {}
        self._visits: set[_TokenCallerSession] = set()
        #: Whether sessions must be checked again, because the tokens have changed; also always if a token can expire.
        self._is_changed = self._can_expire = False
        self._looking: asyncio.TimerHandle | None = None
        if path is not None:
            self._seen = _seen(path)
            self._know(tokens.read(path))

    @property
    def is_open(self) -> bool:
        """Whether callers need no token."""
        return self._table is None

    def start(self) -> None:
        """Starts checking the file for changes."""
        self.stop()
        self._looking = asyncio.get_running_loop().call_later(_LOOK_S, self._look_again)

    def stop(self) -> None:
        """Stops checking."""
        if self._looking is not None:
            self._looking.cancel()

    def _look_again(self) -> None:
        self.look()
        self.start()

    def look(self) -> None:
        """Reloads a changed file, ends visits that are no longer permitted, and removes full rate-limit buckets."""
        self._budgets.sweep()
        self._read_again()
        if self._is_changed or self._can_expire:
            self._is_changed = False
            for session in tuple(self._visits):
                session.renew()

    def _read_again(self) -> bool:
        """Reloads the file if it has changed; returns whether it had."""
        seen = _seen(self._path) if self._path is not None else None
        if self._path is None or seen == self._seen:
            return False
        self._seen = seen
        try:
            self._know(tokens.read(self._path))
        except HoldfastError as error:
            get_logger().error("tokens_unusable", message=f"{error.message}; the previous ones stay in force")
        return True

    def _know(self, found: list[Token] | None) -> None:
        self._is_changed = True
        self._can_expire = any(token.expires_at_ms for token in found or ())
        if found is not None:
            self._table = TokenTable(found)
            self._callers = {token.name: Caller(token.name, frozenset(token.scopes)) for token in found}
        elif self._table is not None:
            self._table, self._callers = TokenTable([]), {}
        if found is not None:
            get_logger().info("tokens_read", tokens=len(found))

    # -- authorization

    def recognise(self, token: str, right: Right) -> Caller | None:
        """Checks the headers of a call before its body is received."""
        if self._table is None or right is OpenAccess.PUBLIC:
            return None
        caller = self._callers[self._found(tokens.hash_of(token)).name]
        if isinstance(right, Scope):
            caller.require(right)
        return caller

    def charge(self, caller: Caller | None, token: str, peer: str, scope: Scope) -> None:
        """Counts one call after its body has arrived."""
        if caller is not None and self._callers.get(caller.name) is caller:
            self._found(tokens.hash_of(token))  # it may have expired since
            self._budgets.spend(caller.name, scope)
        else:
            self.admit(token, peer, scope)  # the tokens have changed since, or there were none

    def admit(self, token: str, peer: str, scope: Scope) -> Caller:
        """Admits a caller for one call."""
        caller = self.caller(tokens.hash_of(token) if self._table is not None else b"", peer, scope)
        self._budgets.spend(caller.name, scope)
        return caller

    def enter(self, token: str, peer: str, right: Right, ended: Ended) -> "_TokenCallerSession":
        """Admits a caller for a conversation or a stream."""
        scope = right if isinstance(right, Scope) else None
        session = _TokenCallerSession(self, tokens.hash_of(token), peer, scope, ended)
        self._budgets.spend(session.caller.name, scope)
        self._visits.add(session)
        return session

    def caller(self, digest: bytes, peer: str, scope: Scope | None) -> Caller:
        """Returns the caller with this token hash if it has the scope; failed authentication counts by address."""
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
            raise UnauthenticatedError(
                "the token is unknown to this server; check it, or create one with `holdfast token create`",
                reason="TOKEN_UNKNOWN",
            )
        if token.is_over(self._clock_ms()):
            raise UnauthenticatedError("the token has expired; create a new one", reason="TOKEN_EXPIRED")
        return token

    def spend(self, name: str, scope: Scope) -> None:
        """Counts one call."""
        self._budgets.spend(name, scope)

    def left(self, session: "_TokenCallerSession") -> None:
        """Removes a session that has ended."""
        self._visits.discard(session)


_MISSING = "TOKEN_MISSING"
_NOTHING = tokens.hash_of("")


class _TokenCallerSession:
    """A session that keeps the hash of its token; the token is checked again if the tokens change or one can expire."""

    def __init__(self, guard: TokenGuard, digest: bytes, peer: str, scope: Scope | None, ended: Ended) -> None:
        self._guard = guard
        self._digest = digest
        self._peer = peer
        self._scope = scope
        self._ended = ended
        self._error: HoldfastError | None = None
        self.caller = guard.caller(digest, peer, scope)

    def admit(self, scope: Scope) -> Caller:
        """Admits one call within the session."""
        if self._error is not None:
            raise self._error
        caller = self.caller
        caller.require(scope)
        self._guard.spend(caller.name, scope)
        return caller

    def renew(self) -> None:
        """Checks the token again; a session that has lost its permission does not regain it."""
        try:
            self.caller = self._guard.caller(self._digest, self._peer, self._scope)
        except HoldfastError as error:
            self._error = error
            self.leave()
            self._ended(error)

    def leave(self) -> None:
        """Stops checking this session."""
        self._guard.left(self)


def _seen(path: Path) -> _Seen | None:
    """Returns a value that differs between versions of the file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def place_of(peer: str) -> str:
    """Returns the address of a peer without its port, for gRPC and HTTP notation."""
    return peer.rpartition(":")[0].removeprefix("ipv4:").removeprefix("ipv6:") or peer
