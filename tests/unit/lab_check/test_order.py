"""The rule about order, beside a definition of it that is slow and obvious."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.lab.check.history import History
from holdfast.lab.check.order import out_of_order
from holdfast.lab.check.ruling import Tally
from holdfast.lab.history.records import DONE, Answered, Asked, GrantFact, JobFact, Record, Run, Wanted

#: When each is asked for, how long the answer takes and when within that time it is decided, and whether it is delayed.
SUBMITS = st.lists(
    st.tuples(st.integers(1, 40), st.integers(1, 10), st.integers(0, 9), st.booleans()), min_size=1, max_size=12
)


@given(submits=SUBMITS, data=st.data())
def test_overtaken_jobs_are_found_as_defined(submits: list[tuple[int, int, int, bool]], data: st.DataObject) -> None:
    """Whoever is named was overtaken by a job that was asked for later, and where anybody was, somebody is named."""
    count = len(submits)
    numbers = number_of(submits)
    places = data.draw(st.permutations(range(1, count + 1)))
    records: list[Record] = []
    for job, (asked, takes, _, is_delayed) in enumerate(submits):
        name = f"j{job}"
        records += [
            Asked(asked, name, "client", "submit", "grpc", [Wanted(name, delay_ms=5 if is_delayed else 0)]),
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
    """Numbers in the order in which a store may have decided: each at some time between its question and its answer."""
    decided = [(asked + min(within, takes), job) for job, (asked, takes, within, _) in enumerate(submits)]
    order = sorted(range(len(submits)), key=decided.__getitem__)
    return [order.index(job) + 1 for job in range(len(submits))]


def test_overtaken_job_is_found_also_after_one_that_had_a_lower_number() -> None:
    """Whoever is not proven to have been overtaken by one job may have been by the next."""
    run = Run("made-up", 1, keeps=["grants", "order"])
    #: When each is asked for, its number, and the place of its grant.
    jobs = {"moved": (1, 5, 3), "lower": (10, 3, 1), "higher": (20, 7, 2)}
    records: list[Record] = []
    for name, (asked, number, place) in jobs.items():
        records += [
            Asked(asked, name, "client", "submit", "grpc", [Wanted(name)]),
            Answered(asked + 1, name, [name]),
            JobFact(name, name, DONE, number=number, grants=1),
            GrantFact(name, 1, place),
        ]
    assert [(one.job_id, one.also) for one in out_of_order(History(run, records), Tally())] == [("moved", ("higher",))]
