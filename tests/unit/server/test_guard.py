"""The guard of a server: tokens of the current file, for single calls and for streams."""

from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from holdfast.errors import (
    FailedPreconditionError,
    HoldfastError,
    PermissionDeniedError,
    ResourceExhaustedError,
    UnauthenticatedError,
)
from holdfast.server.auth import tokens
from holdfast.server.auth.permissions import ALL_SCOPES, Caller, OpenAccess, OpenGuard, Scope
from holdfast.server.auth.rate_limits import Budgets
from holdfast.server.auth.token_guard import TokenGuard, place_of

PEER = "ipv4:192.0.2.1:4242"


class World:
    """A directory, a clock and a guard."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / tokens.FILE_NAME
        self.now_ms = 1_000_000

    def token(self, name: str, *scopes: Scope, lasting_ms: int = 0) -> str:
        expires_at_ms = self.now_ms + lasting_ms if lasting_ms else 0
        return tokens.create(self.path, name, scopes, now_ms=self.now_ms, expires_at_ms=expires_at_ms)

    def guard(self, budgets: Budgets | None = None) -> TokenGuard:
        return TokenGuard(self.path, budgets or Budgets(), lambda: self.now_ms)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def reason_of(ask: Callable[[], object]) -> str:
    """Returns the reason of the refusal."""
    with pytest.raises(HoldfastError) as caught:
        ask()
    return caught.value.reason


def test_without_a_token_file_every_caller_has_all_scopes(world: World) -> None:
    """Without a token file every caller has all scopes and is identified by its address."""
    guard = world.guard()
    assert guard.is_open
    caller = guard.admit("", PEER, Scope.ADMIN)
    assert (caller.name, caller.scopes) == ("192.0.2.1", ALL_SCOPES)
    assert TokenGuard(None, Budgets()).admit("", PEER, Scope.WORK).name == "192.0.2.1"


@pytest.mark.parametrize("scope", list(Scope))
def test_token_is_good_for_its_own_scope(world: World, scope: Scope) -> None:
    """A token permits only its own scope, except that admin includes the others."""
    token = world.token("one", scope)
    guard = world.guard()
    for asked in Scope:
        if asked is scope or scope is Scope.ADMIN:
            assert guard.admit(token, PEER, asked).name == "one"
        else:
            with pytest.raises(PermissionDeniedError, match=f"needs the scope {asked.value}"):
                guard.admit(token, PEER, asked)


def test_new_token_is_known_when_it_is_first_shown(world: World) -> None:
    """A new token is accepted at its first use, before the next periodic check of the file."""
    world.token("first", Scope.READ)
    guard = world.guard()
    second = world.token("second", Scope.WORK)
    assert guard.admit(second, PEER, Scope.WORK).name == "second"
    assert reason_of(lambda: guard.admit("nobody's", PEER, Scope.READ)) == "TOKEN_UNKNOWN"


def test_invalid_token_is_refused_with_its_own_reason(world: World) -> None:
    """A missing, unknown, expired or revoked token is refused with its own reason."""
    old = world.token("old", Scope.ADMIN, lasting_ms=10)
    gone = world.token("gone", Scope.ADMIN)
    tokens.revoke(world.path, "gone")
    guard = world.guard()
    assert guard.admit(old, PEER, Scope.READ).name == "old"
    world.now_ms += 10
    shown = {"": "TOKEN_MISSING", "x": "TOKEN_UNKNOWN", gone: "TOKEN_UNKNOWN", old: "TOKEN_EXPIRED"}
    shown |= {"x" * 10_000: "TOKEN_UNKNOWN", "ä": "TOKEN_UNKNOWN"}
    for token, reason in shown.items():
        assert reason_of(lambda token=token: guard.admit(token, PEER, Scope.READ)) == reason  # type: ignore[misc]


def test_changes_are_noticed(world: World) -> None:
    """Created and revoked tokens take effect at the next check, and an open server becomes closed."""
    guard = world.guard()
    token = world.token("one", Scope.READ)
    guard.look()
    assert not guard.is_open
    assert reason_of(lambda: guard.admit("", PEER, Scope.READ)) == "TOKEN_MISSING"
    assert guard.admit(token, PEER, Scope.READ).name == "one"
    tokens.revoke(world.path, "one")
    guard.look()
    assert reason_of(lambda: guard.admit(token, PEER, Scope.READ)) == "TOKEN_UNKNOWN"


def test_server_that_had_tokens_is_never_open_again(world: World) -> None:
    """A server that had tokens accepts no caller after the token file was removed."""
    token = world.token("one", Scope.READ)
    guard = world.guard()
    world.path.unlink()
    guard.look()
    assert not guard.is_open
    assert reason_of(lambda: guard.admit(token, PEER, Scope.READ)) == "TOKEN_UNKNOWN"


def test_damaged_file_is_refused_at_first_and_changes_nothing_later(world: World) -> None:
    """A server does not start with a damaged file, and a running one logs it once and keeps the known tokens."""
    token = world.token("one", Scope.READ)
    guard = world.guard()
    world.path.write_text("{")
    with capture_logs() as logs:
        guard.look()
        guard.look()
    assert [line["event"] for line in logs] == ["tokens_unusable"]
    assert guard.admit(token, PEER, Scope.READ).name == "one"
    with pytest.raises(FailedPreconditionError):
        world.guard()


def test_visit_is_checked_call_by_call_and_ends_with_its_token(world: World) -> None:
    """A visit is checked at each call, is notified once when its token is revoked, and is refused from then on."""
    token = world.token("one", Scope.READ)
    guard = world.guard()
    told: list[HoldfastError] = []
    visit = guard.enter(token, PEER, OpenAccess.CALLERS, told.append)
    assert visit.admit(Scope.READ).name == "one"
    assert reason_of(lambda: visit.admit(Scope.SUBMIT)) == "SCOPE_MISSING"
    guard.look()
    assert not told
    tokens.revoke(world.path, "one")
    guard.look()
    guard.look()
    assert [error.reason for error in told] == ["TOKEN_UNKNOWN"]
    assert reason_of(lambda: visit.admit(Scope.READ)) == "TOKEN_UNKNOWN"


def test_call_whose_token_runs_out_before_its_body_has_come_is_refused(world: World) -> None:
    """A call whose token expires before its body has arrived is refused."""
    token = world.token("one", Scope.READ, lasting_ms=10)
    guard = world.guard()
    caller = guard.recognise(token, Scope.READ)
    guard.charge(caller, token, PEER, Scope.READ)
    world.now_ms += 10
    assert reason_of(lambda: guard.charge(caller, token, PEER, Scope.READ)) == "TOKEN_EXPIRED"


def test_visit_ends_when_its_token_runs_out(world: World) -> None:
    """A visit ends when its token expires."""
    token = world.token("one", Scope.READ, lasting_ms=10)
    guard = world.guard()
    told: list[HoldfastError] = []
    guard.enter(token, PEER, Scope.READ, told.append)
    world.now_ms += 10
    guard.look()
    assert [error.reason for error in told] == ["TOKEN_EXPIRED"]


def test_visit_of_an_open_server_ends_when_it_gets_tokens(world: World) -> None:
    """A visit without a token ends when an open server gets tokens."""
    guard = world.guard()
    told: list[HoldfastError] = []
    guard.enter("", PEER, Scope.READ, told.append)
    world.token("one", Scope.READ)
    guard.look()
    assert [error.reason for error in told] == ["TOKEN_MISSING"]


@pytest.mark.parametrize("has_tokens", [True, False])
def test_visits_are_not_checked_again_while_no_token_changes(
    world: World, *, has_tokens: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of idle callers cost no check, unless the tokens have changed or one of them can expire."""
    token = world.token("one", Scope.READ) if has_tokens else ""
    guard = world.guard()
    guard.enter(token, PEER, Scope.READ, lambda _: None)
    guard.look()
    checked: list[bytes] = []
    caller = guard.caller

    def counted(digest: bytes, peer: str, scope: Scope | None) -> Caller:
        checked.append(digest)
        return caller(digest, peer, scope)

    monkeypatch.setattr(guard, "caller", counted)
    guard.look()
    assert checked == []
    world.token("two", Scope.READ)
    guard.look()
    assert len(checked) == 1
    guard.look()
    assert len(checked) == 1


def test_visit_that_has_left_hears_nothing(world: World) -> None:
    """A visit that has left is not notified and not kept."""
    token = world.token("one", Scope.READ)
    guard = world.guard()
    told: list[HoldfastError] = []
    guard.enter(token, PEER, Scope.READ, told.append).leave()
    tokens.revoke(world.path, "one")
    guard.look()
    assert not told
    assert not guard._visits


def test_visit_needs_its_scope_from_the_beginning(world: World) -> None:
    """A stream needs its scope at the start, and a conversation needs only a valid token."""
    token = world.token("one", Scope.SUBMIT)
    guard = world.guard()
    with pytest.raises(PermissionDeniedError):
        guard.enter(token, PEER, Scope.READ, lambda _: None)
    with pytest.raises(UnauthenticatedError):
        guard.enter("", PEER, OpenAccess.CALLERS, lambda _: None)
    assert guard.enter(token, PEER, OpenAccess.CALLERS, lambda _: None).caller.name == "one"


def test_budget_is_the_tokens_and_of_strangers_the_address(world: World) -> None:
    """A token has one budget for all addresses, and callers without a valid token spend that of their address."""
    token = world.token("one", Scope.ADMIN)
    guard = world.guard(Budgets(1, 1, lambda: 0.0))
    for peer in ("ipv4:192.0.2.1:1", "ipv4:192.0.2.2:2"):
        guard.admit(token, peer, Scope.SUBMIT)
    with pytest.raises(ResourceExhaustedError):
        guard.admit(token, "ipv4:192.0.2.3:3", Scope.SUBMIT)
    assert guard.admit(token, PEER, Scope.WORK).name == "one"
    for _ in range(2):
        assert reason_of(lambda: guard.admit("x", PEER, Scope.SUBMIT)) == "TOKEN_UNKNOWN"
    assert reason_of(lambda: guard.admit("x", PEER, Scope.SUBMIT)) == "OVER_BUDGET"


@pytest.mark.parametrize(
    ("peer", "place"),
    [
        ("ipv4:127.0.0.1:5", "127.0.0.1"),
        ("127.0.0.1:5", "127.0.0.1"),
        ("ipv6:%5B::1%5D:5", "%5B::1%5D"),
        ("unix:", "unix"),
        ("", ""),
    ],
)
def test_place_is_the_address_without_the_port(peer: str, place: str) -> None:
    """The place of a peer is its address without the port, whatever the protocol."""
    assert place_of(peer) == place


def test_open_guard_admits_every_caller() -> None:
    """The open guard admits every caller, for transports that are protected in another way."""
    guard = OpenGuard()
    assert guard.admit("", PEER, Scope.ADMIN).may(Scope.ADMIN)
    visit = guard.enter("", PEER, Scope.WORK, lambda _: None)
    assert visit.admit(Scope.ADMIN) is visit.caller
    visit.leave()


@pytest.mark.parametrize("how", ["revoked", "file removed"])
def test_token_that_is_gone_when_the_body_has_come_is_refused(tmp_path: Path, how: str) -> None:
    """A call whose token is revoked or removed before its body has arrived is refused."""
    path = tmp_path / tokens.FILE_NAME
    token = tokens.create(path, "one", [Scope.SUBMIT], now_ms=1)
    tokens.create(path, "two", [Scope.SUBMIT], now_ms=1)
    guard = TokenGuard(path, Budgets())
    caller = guard.recognise(token, Scope.SUBMIT)
    assert caller is not None
    guard.charge(caller, token, PEER, Scope.SUBMIT)
    if how == "revoked":
        tokens.revoke(path, "one")
    else:
        path.unlink()
    guard.look()
    assert reason_of(lambda: guard.charge(caller, token, PEER, Scope.SUBMIT)) == "TOKEN_UNKNOWN"
    assert reason_of(lambda: guard.recognise(token, Scope.SUBMIT)) == "TOKEN_UNKNOWN"
