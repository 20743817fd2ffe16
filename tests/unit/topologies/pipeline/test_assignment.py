"""The assignment of queue processes to workers: its guarantees for any workers and queue processes."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import limits
from holdfast.topologies.pipeline.roles.assignment import Assigned, assign, is_high, queue_index

QUEUES = st.integers(0, 9).map(lambda count: [f"q{index}" for index in range(count)])
WORKERS = st.dictionaries(st.sampled_from([f"w{index}" for index in range(12)]), st.sampled_from("AB"))
BREADTH = st.integers(1, 5)
HELD = st.dictionaries(
    st.sampled_from([f"w{index}" for index in range(12)]),
    st.sets(st.sampled_from([f"q{index}" for index in range(12)])),
)


def check(workers: dict[str, str], queues: list[str], assigned: Assigned, breadth: int) -> None:
    """Checks the guarantees of every assignment."""
    assert set(assigned) == set(workers)
    for kind in set(workers.values()):
        alike = [worker for worker in workers if workers[worker] == kind]
        sizes = [len(assigned[worker]) for worker in alike]
        served = Counter(dict.fromkeys(queues, 0))
        for worker in alike:
            assert len(set(assigned[worker])) == len(assigned[worker])
            served.update(assigned[worker])
        assert set(served) == set(queues)
        assert max(sizes) - min(sizes) <= 1
        assert min(sizes) >= min(breadth, len(queues))
        if queues:
            assert min(served.values()) >= 1
            assert max(served.values()) - min(served.values()) <= 1


def lost(before: Assigned, after: Assigned) -> int:
    """Counts the queue processes that the remaining workers had to give up."""
    return sum(len(set(before[worker]) - set(after[worker])) for worker in before if worker in after)


@given(WORKERS, QUEUES, HELD, BREADTH)
def test_every_queue_is_served_and_loads_are_level(
    workers: dict[str, str], queues: list[str], held: dict[str, set[str]], breadth: int
) -> None:
    """For any previous assignment, each kind serves every queue process, and loads differ by at most one."""
    check(workers, queues, assign(workers, queues, held, breadth), breadth)


@given(WORKERS, QUEUES, HELD, BREADTH)
def test_nothing_moves_without_a_reason(
    workers: dict[str, str], queues: list[str], held: dict[str, set[str]], breadth: int
) -> None:
    """A second assignment with the same input changes nothing."""
    settled = assign(workers, queues, held, breadth)
    assert assign(workers, queues, settled, breadth) == settled


@given(WORKERS.filter(bool), QUEUES, BREADTH, st.data())
def test_leaving_worker_moves_at_most_the_queue_processes_it_had(
    workers: dict[str, str], queues: list[str], breadth: int, data: st.DataObject
) -> None:
    """When a worker leaves, the others give up at most as many queue processes as it had."""
    before: Assigned = {}
    for count in range(1, len(workers) + 1):
        before = assign(dict(list(workers.items())[:count]), queues, before, breadth)
    gone = data.draw(st.sampled_from(sorted(workers)))
    left = {worker: kind for worker, kind in workers.items() if worker != gone}
    after = assign(left, queues, before, breadth)
    check(left, queues, after, breadth)
    assert lost(before, after) <= len(before[gone])


@given(WORKERS, QUEUES, BREADTH, st.sampled_from("AB"))
def test_joining_worker_moves_at_most_the_queue_processes_it_gets(
    workers: dict[str, str], queues: list[str], breadth: int, kind: str
) -> None:
    """When a worker joins, the others give up at most as many queue processes as it gets."""
    before = assign(workers, queues, {}, breadth)
    joined = {**workers, "w-new": kind}
    after = assign(joined, queues, before, breadth)
    check(joined, queues, after, breadth)
    assert lost(before, after) <= len(after["w-new"])


def test_lone_worker_takes_everything() -> None:
    """A single worker serves all queue processes, and gives half of them to a second one."""
    queues = ["n1", "n2", "h1", "h2"]
    alone = assign({"a": ""}, queues, {}, 1)
    assert alone == {"a": ("n1", "n2", "h1", "h2")}
    both = assign({"a": "", "b": ""}, queues, alone, 1)
    assert sorted(map(len, both.values())) == [2, 2]
    assert set(both["a"]) < set(alone["a"])


@pytest.mark.parametrize(("priority", "expected"), [(0, False), (limits.PRIORITY_DEFAULT, False), (6, True), (9, True)])
def test_only_a_priority_above_the_default_is_high(priority: int, expected: bool) -> None:  # noqa: FBT001
    """Only a priority above the default goes to the high queue processes."""
    assert is_high(priority) is expected


def test_routing_depends_on_the_type_and_on_how_often_it_was_claimed() -> None:
    """Routing depends on the type and the number of deliveries, so that a retry may take another queue process."""
    assert [queue_index("echo", deliveries, 3) for deliveries in range(1, 7)] == [2, 2, 1, 2, 1, 2]
    assert {queue_index(f"type-{index}", 1, 3) for index in range(50)} == {0, 1, 2}
