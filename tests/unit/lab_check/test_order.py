"""The rule about order, compared with a slow and obvious definition of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast_lab.check.history import History
from holdfast_lab.check.order import out_of_order
from holdfast_lab.check.verdict import Status, Tally
from holdfast_lab.history.records import DONE, Answered, Asked, GrantFact, JobFact, JobSpec, Record, Run
from tests.unit.lab_check.changes import Changed
from tests.unit.lab_check.sound_history import sound

#: When each submit is sent, how long the response takes and when within that time it is decided, and whether it is
#: delayed.
SUBMITS = st.lists(
    st.tuples(st.integers(1, 40), st.integers(1, 10), st.integers(0, 9), st.booleans()), min_size=1, max_size=12
)


@given(submits=SUBMITS, data=st.data())
def test_overtaken_jobs_are_found_as_defined(submits: list[tuple[int, int, int, bool]], data: st.DataObject) -> None:
    """Every job that is named was overtaken by a later submit, and every overtaken job is named."""
    count = len(submits)
    numbers = number_of(submits)
    places = data.draw(st.permutations(range(1, count + 1)))
    records: list[Record] = []
    for job, (asked, takes, _, is_delayed) in enumerate(submits):
        name = f"j{job}"
        records += [
            Asked(asked, name, "client", "submit", "grpc", [JobSpec(name, delay_ms=5 if is_delayed else 0)]),
            Answered(asked + takes, name, [name]),
            JobFact(name, name, DONE, number=numbers[job], grants=1),
            GrantFact(name, 1, places[job]),
        ]
    history = History(Run("made-up", 1, keeps=["grants", "order"]), records)
    named = {(one.job_id, *one.also) for one in out_of_order(history, Tally())}
    pairs = {
        (f"j{earlier}", f"j{later}")
        for earlier, (asked, takes, _, is_delayed) in enumerate(submits)
        for later in range(count)
        if not is_delayed and asked + takes < submits[later][0] and places[earlier] > places[later]
    }
    assert named <= pairs
    assert {earlier for earlier, _ in named} == {earlier for earlier, _ in pairs}


def number_of(submits: list[tuple[int, int, int, bool]]) -> list[int]:
    """Returns numbers in a possible order of decisions: each between its request and its response."""
    decided = [(asked + min(within, takes), job) for job, (asked, takes, within, _) in enumerate(submits)]
    order = sorted(range(len(submits)), key=decided.__getitem__)
    return [order.index(job) + 1 for job in range(len(submits))]


#: When a job is submitted, its number, and the places of its grants; the response comes a moment later.
Job = tuple[int, int, list[int]]
ORDERS: dict[str, tuple[dict[str, Job], list[tuple[str, str]]]] = {
    "in order": ({"a": (1, 1, [1]), "b": (10, 2, [2])}, []),
    "overtaken": ({"a": (1, 1, [2]), "b": (10, 2, [1])}, [("a", "b")]),
    "granted again before its turn": ({"a": (1, 1, [2]), "b": (10, 2, [1, 3])}, [("a", "b")]),
    "granted again after its turn": ({"a": (1, 1, [1, 3]), "b": (10, 2, [2])}, []),
    "by one with a lower number": ({"a": (1, 2, [2]), "b": (10, 1, [1])}, []),
    "by one with the same number": ({"a": (1, 1, [2]), "b": (10, 1, [1])}, []),
    "by one without a number": ({"a": (1, 1, [2]), "b": (10, 0, [1])}, []),
    "without a number": ({"a": (1, 0, [2]), "b": (10, 2, [1])}, []),
    "by one with a lower number and then by one with a higher": (
        {"a": (1, 5, [3]), "b": (10, 3, [1]), "c": (20, 7, [2])},
        [("a", "c")],
    ),
    "the second of four that were granted backwards": (
        {"a": (25, 1, [1]), "b": (41, 2, [4]), "c": (42, 3, [3]), "d": (43, 4, [2]), "e": (45, 5, [5])},
        [("b", "d")],
    ),
}


def records_of(jobs: dict[str, Job]) -> list[Record]:
    found: list[Record] = []
    for name, (asked, number, places) in jobs.items():
        found += [
            Asked(asked, name, "client", "submit", "grpc", [JobSpec(name)]),
            Answered(asked + 1, name, [name]),
            JobFact(name, name, DONE, number=number, grants=len(places)),
            *(GrantFact(name, token, place) for token, place in enumerate(places, start=1)),
        ]
    return found


def overtaken_in(records: list[Record]) -> tuple[list[tuple[str, ...]], int]:
    """Returns which job was overtaken by which, and the number of cases."""
    tally = Tally()
    history = History(Run("made-up", 1, keeps=["grants", "order"]), records)
    return [(one.job_id, *one.also) for one in out_of_order(history, tally)], tally.cases


@pytest.mark.parametrize(("jobs", "expected"), ORDERS.values(), ids=ORDERS.keys())
def test_first_grants_are_compared(jobs: dict[str, Job], expected: list[tuple[str, str]]) -> None:
    """An acknowledged job with a lower number and a later first grant was overtaken, and no other job was."""
    found, _ = overtaken_in(records_of(jobs))
    assert found == expected


def test_job_whose_first_grant_is_not_told_is_not_compared() -> None:
    """A job with more counted than stored grants is not compared, because its first grant may be missing."""
    records = records_of({"a": (1, 1, [2]), "b": (10, 2, [1])})
    told = [replace(one, grants=2) if isinstance(one, JobFact) and one.id == "a" else one for one in records]
    assert overtaken_in(told) == ([], 0)


def test_job_with_an_earlier_submit_did_not_overtake() -> None:
    """A job may exist since its first submit, even without a response."""
    records = records_of({"a": (2, 2, [2]), "b": (10, 3, [1])})
    tried = Asked(1, "try", "client", "submit", "grpc", [JobSpec("b")])
    for some in ([tried, *records], [*records, tried]):  # files are read in any order
        assert overtaken_in(some) == ([], 0)


def test_job_that_may_be_delayed_was_not_overtaken() -> None:
    """A job with a delay in one of its submits is not compared."""
    records = records_of({"a": (2, 1, [2]), "b": (10, 2, [1])})
    assert overtaken_in([Asked(1, "try", "client", "submit", "grpc", [JobSpec("a", delay_ms=5)]), *records]) == ([], 0)


@pytest.mark.parametrize("keeps", [["grants", "ticks"], ["order", "ticks"]])
def test_order_needs_an_order_and_grants(keeps: list[str]) -> None:
    """Without the order of submits or without grants nothing can be compared."""
    it = Changed(*sound())
    it.run = replace(it.run, keeps=keeps)
    assert it.judge().ruling("out of order").status is Status.NOT_OFFERED
