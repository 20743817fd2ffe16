"""The guard of a server: tokens as the file has them now, for one call and for those who stay."""

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
from holdfast.server.auth.permissions import ALL_SCOPES, Open, OpenGuard, Scope
from holdfast.server.auth.rate_limits import Budgets
from holdfast.server.auth.token_guard import TokenGuard, place_of

PEER = "ipv4:192.0.2.1:4242"


class World:
    """A directory, a clock and the guard over them."""

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
    """Why it was refused."""
    with pytest.raises(HoldfastError) as caught:
        ask()
    return caught.value.reason


def test_without_a_file_everybody_may_do_everything(world: World) -> None:
    """Such a server is reached by its own machine only; callers are told apart by their address."""
    guard = world.guard()
    assert guard.is_open
    caller = guard.admit("", PEER, Scope.ADMIN)
    assert (caller.name, caller.scopes) == ("192.0.2.1", ALL_SCOPES)
    assert TokenGuard(None, Budgets()).admit("", PEER, Scope.WORK).name == "192.0.2.1"


@pytest.mark.parametrize("scope", list(Scope))
def test_token_is_good_for_its_own_scope(world: World, scope: Scope) -> None:
    """And for nothing else, except that admin contains the others."""
    token = world.token("one", scope)
    guard = world.guard()
    for asked in Scope:
        if asked is scope or scope is Scope.ADMIN:
            assert guard.admit(token, PEER, asked).name == "one"
        else:
            with pytest.raises(PermissionDeniedError, match=f"needs the scope {asked.value}"):
                guard.admit(token, PEER, asked)


def test_new_token_is_known_when_it_is_first_shown(world: World) -> None:
    """Whoever has just made one need not wait until the file is looked at again."""
    world.token("first", Scope.READ)
    guard = world.guard()
    second = world.token("second", Scope.WORK)
    assert guard.admit(second, PEER, Scope.WORK).name == "second"
    assert reason_of(lambda: guard.admit("nobody's", PEER, Scope.READ)) == "TOKEN_UNKNOWN"


def test_who_is_nobody_is_told_why(world: World) -> None:
    """No token, an unknown one, one that has run out, and one that was revoked."""
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
    """Tokens that come and go count at the next look, and a server that was open closes."""
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
    """A file that goes away lets nobody in."""
    token = world.token("one", Scope.READ)
    guard = world.guard()
    world.path.unlink()
    guard.look()
    assert not guard.is_open
    assert reason_of(lambda: guard.admit(token, PEER, Scope.READ)) == "TOKEN_UNKNOWN"


def test_damaged_file_is_refused_at_first_and_changes_nothing_later(world: World) -> None:
    """Nobody starts with it; whoever runs says so once, and goes on with what was known."""
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
    """Whoever stays is told once when its token goes, and nothing is answered from then on."""
    token = world.token("one", Scope.READ)
    guard = world.guard()
    told: list[HoldfastError] = []
    visit = guard.enter(token, PEER, Open.CALLERS, told.append)
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
    """The headers were good; whoever holds its body back gains no time."""
    token = world.token("one", Scope.READ, lasting_ms=10)
    guard = world.guard()
    caller = guard.recognise(token, Scope.READ)
    guard.charge(caller, token, PEER, Scope.READ)
    world.now_ms += 10
    assert reason_of(lambda: guard.charge(caller, token, PEER, Scope.READ)) == "TOKEN_EXPIRED"


def test_visit_ends_when_its_token_runs_out(world: World) -> None:
    """Time is looked at as well as the file."""
    token = world.token("one", Scope.READ, lasting_ms=10)
    guard = world.guard()
    told: list[HoldfastError] = []
    guard.enter(token, PEER, Scope.READ, told.append)
    world.now_ms += 10
    guard.look()
    assert [error.reason for error in told] == ["TOKEN_EXPIRED"]


def test_visit_of_an_open_server_ends_when_it_gets_tokens(world: World) -> None:
    """Who came without one has to come again with one; who showed a good one goes on."""
    guard = world.guard()
    told: list[HoldfastError] = []
    guard.enter("", PEER, Scope.READ, told.append)
    world.token("one", Scope.READ)
    guard.look()
    assert [error.reason for error in told] == ["TOKEN_MISSING"]


def test_visit_that_has_left_hears_nothing(world: World) -> None:
    """Nobody is kept in mind who is gone."""
    token = world.token("one", Scope.READ)
    guard = world.guard()
    told: list[HoldfastError] = []
    guard.enter(token, PEER, Scope.READ, told.append).leave()
    tokens.revoke(world.path, "one")
    guard.look()
    assert not told
    assert not guard._visits


def test_visit_needs_its_scope_from_the_beginning(world: World) -> None:
    """A stream names one, a conversation none."""
    token = world.token("one", Scope.SUBMIT)
    guard = world.guard()
    with pytest.raises(PermissionDeniedError):
        guard.enter(token, PEER, Scope.READ, lambda _: None)
    with pytest.raises(UnauthenticatedError):
        guard.enter("", PEER, Open.CALLERS, lambda _: None)
    assert guard.enter(token, PEER, Open.CALLERS, lambda _: None).caller.name == "one"


def test_budget_is_the_tokens_and_of_strangers_the_address(world: World) -> None:
    """From however many places a token comes it has one budget; who is nobody cannot use it up."""
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
    """However a protocol writes it."""
    assert place_of(peer) == place


def test_open_guard_asks_nobody() -> None:
    """For where something else protects the jobs."""
    guard = OpenGuard()
    assert guard.admit("", PEER, Scope.ADMIN).may(Scope.ADMIN)
    visit = guard.enter("", PEER, Scope.WORK, lambda _: None)
    assert visit.admit(Scope.ADMIN) is visit.caller
    visit.leave()


@pytest.mark.parametrize("how", ["revoked", "file removed"])
def test_token_that_is_gone_when_the_body_has_come_is_refused(tmp_path: Path, how: str) -> None:
    """The headers were good; the call is charged when its body is there, and by then the token is gone."""
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
