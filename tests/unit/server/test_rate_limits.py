"""Rate limits: the budget of each caller, and its refill."""

import pytest

from holdfast.errors import ResourceExhaustedError
from holdfast.server.auth.permissions import Scope
from holdfast.server.auth.rate_limits import Budgets


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def spent(budgets: Budgets, name: str, scope: Scope | None = Scope.SUBMIT) -> int:
    """Returns the number of requests that pass before one is refused."""
    for count in range(1_000):
        try:
            budgets.spend(name, scope)
        except ResourceExhaustedError:
            return count
    return 1_000


def test_burst_passes_and_then_the_rate_counts() -> None:
    """A bucket holds two seconds of its rate and refills at that rate."""
    clock = Clock()
    budgets = Budgets(10, 0, clock)
    assert spent(budgets, "ann") == 20
    clock.now += 0.5
    assert spent(budgets, "ann") == 5
    clock.now += 60
    assert spent(budgets, "ann") == 20


def test_callers_and_kinds_have_buckets_of_their_own() -> None:
    """Each caller has buckets of its own, and its submits do not spend the budget of its worker calls."""
    budgets = Budgets(10, 30, Clock())
    assert spent(budgets, "ann") == 20
    assert spent(budgets, "ann", Scope.READ) == 0
    assert spent(budgets, "ann", None) == 0
    assert spent(budgets, "bob") == 20
    assert spent(budgets, "ann", Scope.WORK) == 60


def test_refusal_says_when_to_come_back() -> None:
    """A refusal names the seconds to wait, at least one."""
    clock = Clock()
    budgets = Budgets(1, 0, clock)
    assert spent(budgets, "ann") == 2
    with pytest.raises(ResourceExhaustedError) as caught:
        budgets.spend("ann", Scope.SUBMIT)
    assert caught.value.details == {"retry_after_s": "1"}
    assert caught.value.reason == "OVER_BUDGET"


def test_no_rate_is_no_limit() -> None:
    """A rate of zero means no limit."""
    assert spent(Budgets(0, 0, Clock()), "ann") == 1_000


def test_sweep_forgets_full_buckets_alone() -> None:
    """A sweep removes only full buckets, so that it gives no caller a new budget."""
    clock = Clock()
    budgets = Budgets(10, 10, clock)
    spent(budgets, "ann")
    clock.now += 1
    budgets.sweep()
    assert spent(budgets, "ann") == 10
    clock.now += 2
    budgets.sweep()
    assert budgets._requests._levels == {}


def test_clock_that_stands_still_gives_nothing() -> None:
    """Without elapsed time, refused requests neither cost nor refill anything."""
    budgets = Budgets(1, 0, Clock())
    spent(budgets, "ann")
    assert [spent(budgets, "ann") for _ in range(10)] == [0] * 10
