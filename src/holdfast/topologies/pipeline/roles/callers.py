"""Who may call whom in the pipeline: one table of roles, checked before a body is read.

Every route of a role names a scope. The table says which scopes a caller has at which role; the operator has all of
them everywhere, and nobody else has any. Whether a role is healthy, everybody may ask.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from holdfast.errors import InvalidArgumentError, PermissionDeniedError, UnauthenticatedError
from holdfast.server.auth.permissions import Caller, Ended, Guard, Open, OpenGuard, Right, Scope, Visit
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
#: Roles that call others, and prove who they are.
CALLERS = ("gateway", "watcher", "exchange", "worker", OPERATOR)

_NOBODY: Mapping[str, frozenset[Scope]] = MappingProxyType({})
#: What each caller may ask a role for: gateways submit and read jobs and administrate, watchers and exchanges bring
#: tickets, workers take them.
RIGHTS: Mapping[str, Mapping[str, frozenset[Scope]]] = MappingProxyType(
    {
        "scheduler": {"gateway": frozenset({Scope.ADMIN})},
        "watcher": _NOBODY,
        "exchange": {"watcher": frozenset({Scope.SUBMIT})},
        "queue": {"exchange": frozenset({Scope.SUBMIT}), "worker": frozenset({Scope.WORK})},
        "coordinator": {"worker": frozenset({Scope.WORK})},
        "worker": _NOBODY,
    }
)


class Credentials(msgspec.Struct, frozen=True):
    """What a process shows to those that it calls, and how it knows those that call it."""

    token: str = ""
    hashes: str = ""


def credentials_in(variables: Mapping[str, str]) -> Credentials:
    """Those of the environment; `InvalidArgumentError` names each variable that is wrong, and shows no secret."""
    token, hashes = variables.get(OWN, ""), variables.get(KNOWN, "")
    problems = []
    if not re.fullmatch(PATTERN, token):
        problems.append(f"expected {OWN} to be {EXPECTED}, got {len(token)} characters that are not shown")
    if not re.fullmatch(hashes_pattern(CALLERS), hashes):
        wanted = f"role:hash with commas, roles of {', '.join(CALLERS)}, hashes as 64 hexadecimal digits"
        problems.append(f"expected {KNOWN} to be {wanted}, got {len(hashes)} characters")
    if problems:
        raise InvalidArgumentError("\n".join(problems), reason="ENVIRONMENT_INVALID")
    return Credentials(token, hashes)


def guard_of(role: str, hashes: str) -> Guard:
    """The guard of a role that knows its callers by these hashes; without any, whoever reaches the role may call it."""
    return CallerGuard(role, ServiceTokens(hashes_in(hashes))) if hashes else OpenGuard()


class CallerGuard:
    """Lets in callers that have a right at this role."""

    def __init__(self, role: str, tokens: ServiceTokens) -> None:
        self._role = role
        self._tokens = tokens

    def recognise(self, token: str, right: Right) -> Caller | None:
        """Judges the headers of a call; nobody's token matters for what is open to everybody."""
        if right is Open.EVERYBODY:
            return None
        return self.admit(token, "", Scope.ADMIN if isinstance(right, Open) else right)

    def charge(self, caller: Caller | None, token: str, peer: str, scope: Scope) -> None:
        """Nothing is counted among the processes of one topology."""

    def admit(self, token: str, peer: str, scope: Scope) -> Caller:
        """The caller, by its token; neither its address nor a budget matters."""
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
                f"the {name} may not ask a {self._role} for this",
                reason="CALLER_NOT_ALLOWED",
                details={"caller": name},
            )
        return caller

    def enter(self, token: str, peer: str, right: Right, ended: Ended) -> Visit:
        """The same for a caller that stays; tokens last as long as the process."""
        del ended
        scope = Scope.ADMIN if isinstance(right, Open) else right
        return _Stay(self, token, peer, self.admit(token, peer, scope))

    def _scopes(self, caller: str) -> frozenset[Scope]:
        return frozenset({Scope.ADMIN}) if caller == OPERATOR else RIGHTS[self._role].get(caller, frozenset())


class _Stay:
    """A caller that was let in to stay."""

    def __init__(self, guard: CallerGuard, token: str, peer: str, caller: Caller) -> None:
        self._guard = guard
        self._token = token
        self._peer = peer
        self.caller = caller

    def admit(self, scope: Scope) -> Caller:
        """For one call more."""
        return self._guard.admit(self._token, self._peer, scope)

    def leave(self) -> None:
        """Nothing watches it."""
