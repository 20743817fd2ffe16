"""Faults and orders drawn from a seed."""

from itertools import islice

import pytest

from holdfast.core.owner import owner_index
from holdfast_lab.torture.load.interfaces import JobOrder
from holdfast_lab.torture.load.random_orders import FROZEN_TYPE, OrderGenerator
from holdfast_lab.torture.plan import campaign, drawer, strikes

KINDS = ["kill", "stop", "cut", "clock"]


def drawn(seed: int, kinds: list[str], count: int = 200) -> list[object]:
    return list(islice(strikes(seed, kinds), count))


def test_plan_is_a_function_of_the_seed() -> None:
    """The same seed draws the same strikes, in whatever order the faults are named, and another seed draws others."""
    assert drawn(7, KINDS) == drawn(7, KINDS[::-1])
    assert drawn(7, KINDS) != drawn(8, KINDS)


@pytest.mark.parametrize("seed", range(20))
def test_every_fault_comes_once_and_alone_before_any_comes_again(seed: int) -> None:
    """The first strikes are each of the faults, one at a time."""
    first = list(islice(strikes(seed, KINDS), len(KINDS)))
    assert sorted(kind for strike in first for kind in strike.kinds) == sorted(KINDS)


def test_two_faults_come_at_once_now_and_then_and_are_never_the_same() -> None:
    """Some strikes have two different kinds, and most have one."""
    pairs = [strike.kinds for strike in islice(strikes(3, KINDS), 300) if len(strike.kinds) > 1]
    assert 20 < len(pairs) < 150
    assert all(one != other for one, other in pairs)


def test_faults_that_come_alone_are_never_paired() -> None:
    """Faults that are fired alone are never paired, while the others still are."""
    pairs = [strike.kinds for strike in islice(strikes(3, KINDS, {"clock"}), 300) if len(strike.kinds) > 1]
    assert pairs
    assert not [kinds for kinds in pairs if "clock" in kinds]


def test_kills_come_more_often_than_others() -> None:
    """Kills are drawn several times as often as each other fault."""
    counts = dict.fromkeys(KINDS, 0)
    for strike in islice(strikes(1, KINDS), 500):
        counts[strike.kinds[0]] += 1
    assert counts["kill"] > 2 * max(counts["stop"], counts["cut"], counts["clock"])


def test_campaign_fires_every_fault_as_often_as_asked() -> None:
    """A campaign fires every fault the given number of times, one at a time, in an order that the seed draws."""
    counts = {"kill server": 5, "cut": 2}
    order = [strike.kinds for strike in campaign(7, counts)]
    assert sorted(order) == [("cut",)] * 2 + [("kill server",)] * 5
    assert order == [strike.kinds for strike in campaign(7, counts)]
    assert order != [strike.kinds for strike in campaign(8, counts)]


def test_nothing_to_break_with_is_an_empty_plan() -> None:
    """Without faults there are no strikes."""
    assert list(strikes(1, [])) == []


def test_faults_of_a_strike_draw_apart() -> None:
    """Each fault of a strike has its own random stream."""
    strike = next(strikes(1, KINDS))
    assert drawer(1, strike, "kill").random() == drawer(1, strike, "kill").random()
    assert drawer(1, strike, "kill").random() != drawer(1, strike, "stop").random()


def orders(seed: int, client: str, *, nodes: int = 1, has_options: bool = True) -> list[list[JobOrder]]:
    maker = OrderGenerator(seed, client, lambda key: owner_index(key, nodes))
    return [maker.orders(has_ids=has_options, has_options=has_options) for _ in range(300)]


def test_orders_are_a_function_of_the_seed_and_the_client() -> None:
    """The same client of the same run makes the same orders, and other clients or seeds make others."""
    assert orders(1, "a") == orders(1, "a")
    assert orders(1, "a") != orders(2, "a")
    assert orders(1, "a") != orders(1, "b")


def test_orders_do_not_depend_on_other_draws_of_the_client() -> None:
    """The orders of a client do not depend on its other draws."""
    plain, busy = OrderGenerator(1, "a"), OrderGenerator(1, "a")
    for _ in range(50):
        made = busy.orders(has_ids=True, has_options=True)
        assert plain.orders(has_ids=True, has_options=True) == made
        busy.draw.random()
        busy.waiting()
        busy.other_under(made[0])
        busy.key_beside("key")


def test_every_order_has_a_name_of_its_own() -> None:
    """No two jobs of all clients share a name, a key, or an id."""
    wanted = [order.wanted for client in "ab" for batch in orders(1, client) for order in batch]
    for values in ([one.name for one in wanted], [one.key for one in wanted], [one.id for one in wanted]):
        told = [value for value in values if value]
        assert len(told) == len(set(told)) > 0


def test_batches_can_be_repeated_as_a_whole_or_not_at_all() -> None:
    """Either all jobs of a batch can be repeated, or none."""
    batches = [batch for batch in orders(1, "a") if len(batch) > 1]
    assert batches
    assert all(len({order.is_repeatable for order in batch}) == 1 for batch in batches)


def test_batches_belong_to_one_node() -> None:
    """All keys and ids of a batch have the same owner, because nodes forward nothing."""
    for batch in orders(1, "a", nodes=3):
        handles = [order.wanted.key or order.wanted.id for order in batch]
        assert len({owner_index(handle, 3) for handle in handles if handle}) <= 1


def test_other_content_under_a_key_differs_in_its_digest() -> None:
    """Other content under a used key has another digest and name."""
    maker = OrderGenerator(1, "a")
    used = next(
        order for _ in range(100) for order in maker.orders(has_ids=False, has_options=True) if order.wanted.key
    )
    other = maker.other_under(used)
    assert other.wanted.key == used.wanted.key
    assert other.wanted.digest != used.wanted.digest
    assert other.wanted.name != used.wanted.name


def test_clients_of_the_frozen_contract_ask_for_single_plain_jobs() -> None:
    """The frozen contract has no options, no batches, and no ids made by clients."""
    for batch in orders(1, "a", has_options=False):
        (order,) = batch
        assert (order.wanted.type, order.wanted.id, order.wanted.delay_ms) == (FROZEN_TYPE, "", 0)


def test_jobs_that_fail_have_enough_attempts_and_poison_has_not() -> None:
    """A job that fails on purpose can still end DONE, and a poison job cannot."""
    for order in (order for batch in orders(1, "a") for order in batch):
        if order.wanted.type == "torture.poison":
            assert order.wanted.fails == order.wanted.max_attempts
        else:
            assert order.wanted.fails < order.wanted.max_attempts
