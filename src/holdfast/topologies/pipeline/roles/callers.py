"""The caller matrix of the pipeline: one table of roles, checked before a body is read.

Every route of a role has a scope. The table says which scopes a caller has at which role. The operator has all scopes
at every role; callers that are not in the table have none. Health checks need no token.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from holdfast.errors import InvalidArgumentError, PermissionDeniedError, UnauthenticatedError
from holdfast.server.auth.permissions import Caller, CallerSession, Ended, Guard, OpenAccess, OpenGuard, Right, Scope
from holdfast.server.auth.service_tokens import (
    EXPECTED,
    KNOWN,
    OWN,
    PATTERN,
    ServiceTokens,
    hashes_in,
    hashes_pattern,
)

#: A person or a monitor: no process of the pipeline.
OPERATOR = "operator"
#: Roles that call others, and authenticate with a token.
CALLERS = ("gateway", "watcher", "exchange", "worker", OPERATOR)

_NO_CALLERS: Mapping[str, frozenset[Scope]] = MappingProxyType({})
#: The scopes of each caller at a role: gateways submit and read jobs and administrate, watchers and exchanges push
#: tickets, workers take them.
RIGHTS: Mapping[str, Mapping[str, frozenset[Scope]]] = MappingProxyType(
    {
        "scheduler": {"gateway": frozenset({Scope.ADMIN})},
        "watcher": _NO_CALLERS,
        "exchange": {"watcher": frozenset({Scope.SUBMIT})},
        "queue": {"exchange": frozenset({Scope.SUBMIT}), "worker": frozenset({Scope.WORK})},
        "coordinator": {"worker": frozenset({Scope.WORK})},
        "worker": _NO_CALLERS,
    }
)


class Credentials(msgspec.Struct, frozen=True):
    """The token that a process sends to other roles, and the hashes of its callers' tokens."""

    token: str = ""
    hashes: str = ""


def credentials_in(variables: Mapping[str, str]) -> Credentials:
    """Reads the environment. Raises `InvalidArgumentError` with each invalid variable, without showing secrets."""
    token, hashes = variables.get(OWN, ""), variables.get(KNOWN, "")
    problems = []
    if not re.fullmatch(PATTERN, token):
        problems.append(f"{OWN} must be {EXPECTED}, got {len(token)} characters that are not shown")
    if not re.fullmatch(hashes_pattern(CALLERS), hashes):
        wanted = f"role:hash pairs with commas, roles of {', '.join(CALLERS)}, hashes as 64 hexadecimal digits"
        problems.append(f"{KNOWN} must be {wanted}, got {len(hashes)} characters")
    if problems:
        raise InvalidArgumentError("\n".join(problems), reason="ENVIRONMENT_INVALID")
    return Credentials(token, hashes)


def guard_of(role: str, hashes: str) -> Guard:
    """Returns the guard of a role that checks these hashes; without any, every process that reaches it may call it."""
    return CallerGuard(role, ServiceTokens(hashes_in(hashes))) if hashes else OpenGuard()


class CallerGuard:
    """Admits the callers that have the required scope at this role."""

    def __init__(self, role: str, tokens: ServiceTokens) -> None:
        self._role = role
        self._tokens = tokens

    def recognise(self, token: str, right: Right) -> Caller | None:
        """Checks the token of a call; public routes need none."""
        if right is OpenAccess.PUBLIC:
            return None
        return self.admit(token, "", Scope.ADMIN if isinstance(right, OpenAccess) else right)

    def charge(self, caller: Caller | None, token: str, peer: str, scope: Scope) -> None:
        """Does nothing: calls between the processes of one topology have no rate limit."""

    def admit(self, token: str, peer: str, scope: Scope) -> Caller:
        """Returns the caller of a token; raises an error if it may not call this."""
        del peer
        if not token:
            message = (
                "expected one bearer token, got none; the operator's is in the file operator.token in the data"
                " directory of `holdfast up`"
            )
            raise UnauthenticatedError(message, reason="TOKEN_MISSING")
        name = self._tokens.role_of(token)
        caller = Caller(name, self._scopes(name))
        if not caller.may(scope):
            raise PermissionDeniedError(
                f"the {name} is not allowed to call this route of a {self._role}",
                reason="CALLER_NOT_ALLOWED",
                details={"caller": name},
            )
        return caller

    def enter(self, token: str, peer: str, right: Right, ended: Ended) -> CallerSession:
        """Admits a caller with a persistent connection; tokens do not expire while the process runs."""
        del ended
        scope = Scope.ADMIN if isinstance(right, OpenAccess) else right
        return _RoleCallerSession(self, token, peer, self.admit(token, peer, scope))

    def _scopes(self, caller: str) -> frozenset[Scope]:
        return frozenset({Scope.ADMIN}) if caller == OPERATOR else RIGHTS[self._role].get(caller, frozenset())


class _RoleCallerSession:
    """A caller with a persistent connection."""

    def __init__(self, guard: CallerGuard, token: str, peer: str, caller: Caller) -> None:
        self._guard = guard
        self._token = token
        self._peer = peer
        self.caller = caller

    def admit(self, scope: Scope) -> Caller:
        """Admits one more call."""
        return self._guard.admit(self._token, self._peer, scope)

    def leave(self) -> None:
        """Does nothing: the connection is not registered anywhere."""
