"""What is asked for on the command line becomes a plan, or a sentence that says why not."""

from collections import Counter

import pytest

from holdfast.core.owner import owner_index
from holdfast.errors import InvalidArgumentError
from holdfast.lab.compare.choices import Choice, plan_of
from holdfast.lab.compare.routing import Router, addresses
from holdfast.lab.compare.workloads import CONCURRENCIES, JOB_DURATIONS_MS, KINDS, Plan, seconds_of
from tests.unit.lab.synthetic import series

ALL = "embedded,microservices,monolith"


def planned(**options: object) -> Plan:
    return plan_of(Choice(**{"topologies": ALL, **options}), runs=3, seed=1, clients=2)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"topologies": "embedded,nonsense"}, "expected --topologies to be different ones of embedded, "),
        ({"topologies": "embedded,embedded"}, "got 'embedded,embedded'"),
        ({"topologies": " , "}, "expected --topologies"),
        ({"is_quick": True, "is_full": True}, "expected one of --quick, --full and --workloads"),
        ({"is_quick": True, "workloads": "life-cycle"}, "expected one of --quick, --full and --workloads"),
        ({"concurrency": "8"}, "--concurrency is for workloads of your own"),
        ({"is_quick": True, "fault_s": 5.0}, "--fault is for workloads of your own"),
        ({"warm_up_s": 0.0}, "--warm-up is for workloads of your own"),
        ({"workloads": "sleeping"}, "expected a workload to be one of submit-only, read-heavy, life-cycle"),
        (
            {"workloads": "life-cycle", "concurrency": "8,0"},
            "expected every part of --concurrency to be whole and above 0",
        ),
        ({"workloads": "life-cycle", "rate": "inf"}, "expected every part of --rate to be a number above 0"),
        ({"workloads": "life-cycle", "job_ms": "-1"}, "expected every part of --job-ms"),
        ({"workloads": "read-heavy", "mix": "1,2"}, "expected --mix to be the weights of submit, status"),
        ({"workloads": "read-heavy", "mix": "0,0,0,0,0"}, "not all 0"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(options: dict[str, object], words: str) -> None:
    """The sentence names the option, what was expected and what was given."""
    with pytest.raises(InvalidArgumentError) as refused:
        planned(**options)
    assert words in refused.value.message


def test_full_has_every_combination() -> None:
    """Each kind with each concurrency and each job duration, an open loop, and a fault."""
    workloads = planned(is_full=True).workloads
    grid = {(one.kind, one.concurrency, one.job_ms) for one in workloads if not one.is_open}
    assert grid == {(kind, c, ms) for kind in KINDS for c in CONCURRENCIES for ms in JOB_DURATIONS_MS}
    assert [one.has_fault for one in workloads if one.is_open] == [False, True]


@pytest.mark.parametrize("size", [{"is_quick": True}, {}, {"is_full": True}])
def test_every_plan_has_every_kind_and_a_fault(size: dict[str, bool]) -> None:
    """However little time there is, every kind of load is looked at."""
    kinds = {one.kind for one in planned(**size).workloads}
    assert kinds == {*KINDS, "fault"}


def test_quick_is_planned_for_less_than_two_minutes() -> None:
    """Two topologies, starts included."""
    assert seconds_of(planned(is_quick=True, topologies="microservices,monolith")) < 120


def test_names_of_workloads_are_their_own() -> None:
    """A cell of the report is one workload."""
    names = [one.name for one in planned(is_full=True).workloads]
    assert len(set(names)) == len(names)


def test_own_workloads_are_every_combination() -> None:
    """Concurrencies and rates side by side, with the mix that was asked for."""
    plan = planned(workloads="read-heavy", concurrency="2,3", rate="50", job_ms="0,5", mix="1,1,1,1,0", fault_s=4.0)
    assert [one.name for one in plan.workloads] == [
        "read-heavy c2 0ms",
        "read-heavy c3 0ms",
        "read-heavy open 50/s 0ms",
        "read-heavy c2 5ms",
        "read-heavy c3 5ms",
        "read-heavy open 50/s 5ms",
        "fault open 50/s 10ms",
    ]
    assert {one.mix for one in plan.workloads if not one.is_life_cycle} == {(1, 1, 1, 1, 0)}


def test_topologies_take_turns() -> None:
    """A B, then B A: each is as often the first as it can be, and every run has every cell once."""
    plan = Plan(topologies=("a", "b"), groups=tuple((one,) for one in series(1, 8)), runs=2)
    turns = [(run, group[0].concurrency, topology) for run, group, topology in plan.turns()]
    assert turns == [
        *((0, 1, "a"), (0, 1, "b"), (0, 8, "a"), (0, 8, "b")),
        *((1, 1, "b"), (1, 1, "a"), (1, 8, "b"), (1, 8, "a")),
    ]


def test_submits_without_a_request_id_go_round() -> None:
    """Each node in turn, each list too, and two clients begin at different nodes."""
    router = Router(6)
    assert [router.for_submit("") for _ in range(12)] == [*range(6), *range(6)]
    assert [router.for_list() for _ in range(3)] == [0, 1, 2]
    assert Router(6, first=3).for_submit("") == 3


def test_whatever_has_an_id_goes_to_its_owner() -> None:
    """By the locked rule, the same for request ids and job ids; ids spread over all nodes."""
    router = Router(6)
    keys = [f"key-{number}" for number in range(600)]
    assert [router.for_submit(key) for key in keys] == [owner_index(key, 6) for key in keys]
    assert [router.for_job(key) for key in keys] == [owner_index(key, 6) for key in keys]
    assert min(Counter(map(router.for_job, keys)).values()) > 50


def test_one_address_takes_everything() -> None:
    """A gateway or a single server is a list of one node."""
    assert addresses("127.0.0.1:1") == ("127.0.0.1:1",)
    assert addresses("a:1, b:2") == ("a:1", "b:2")
    assert {Router(1).for_job(key) for key in "abc"} == {0}
