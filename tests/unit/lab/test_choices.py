"""Command-line options of a comparison become a plan, or an error that explains the problem."""

from collections import Counter

import pytest

from holdfast.core.owner import owner_index
from holdfast.errors import InvalidArgumentError
from holdfast_lab.compare.choices import Choice, plan_of
from holdfast_lab.compare.ingress import Router, addresses
from holdfast_lab.compare.workloads import CONCURRENCIES, JOB_DURATIONS_MS, KINDS, ComparisonPlan, seconds_of
from tests.unit.lab.synthetic import series

ALL = "embedded,microservices,monolith"


def planned(**options: object) -> ComparisonPlan:
    return plan_of(Choice(**{"topologies": ALL, **options}), runs=3, seed=1, clients=2)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"topologies": "embedded,nonsense"}, "--topologies must be comma-separated, different ones of embedded, "),
        ({"topologies": "embedded,embedded"}, "got 'embedded,embedded'"),
        ({"topologies": " , "}, "--topologies must be"),
        ({"is_quick": True, "is_full": True}, "expected one of --quick, --full and --workloads"),
        ({"is_quick": True, "workloads": "life-cycle"}, "expected one of --quick, --full and --workloads"),
        ({"concurrency": "8"}, "--concurrency is for workloads of your own"),
        ({"is_quick": True, "fault_s": 5.0}, "--fault is for workloads of your own"),
        ({"warm_up_s": 0.0}, "--warm-up is for workloads of your own"),
        ({"workloads": "sleeping"}, "a workload must be one of submit-only, read-heavy, life-cycle"),
        (
            {"workloads": "life-cycle", "concurrency": "8,0"},
            "every part of --concurrency must be whole and above 0",
        ),
        ({"workloads": "life-cycle", "rate": "inf"}, "every part of --rate must be a number above 0"),
        ({"workloads": "life-cycle", "job_ms": "-1"}, "every part of --job-ms must be"),
        ({"workloads": "read-heavy", "mix": "1,2"}, "--mix must be the weights of submit, status"),
        ({"workloads": "read-heavy", "mix": "0,0,0,0,0"}, "not all 0"),
    ],
)
def test_invalid_option_is_refused_in_a_sentence(options: dict[str, object], words: str) -> None:
    """The error names the option, the expected value and the given value."""
    with pytest.raises(InvalidArgumentError) as refused:
        planned(**options)
    assert words in refused.value.message


def test_full_has_every_combination() -> None:
    """The full plan has each kind with each concurrency and job duration, an open loop, and a fault."""
    workloads = planned(is_full=True).workloads
    grid = {(one.kind, one.concurrency, one.job_ms) for one in workloads if not one.is_open}
    assert grid == {(kind, c, ms) for kind in KINDS for c in CONCURRENCIES for ms in JOB_DURATIONS_MS}
    assert [one.has_fault for one in workloads if one.is_open] == [False, True]


@pytest.mark.parametrize("size", [{"is_quick": True}, {}, {"is_full": True}])
def test_every_plan_has_every_kind_and_a_fault(size: dict[str, bool]) -> None:
    """Every plan has every kind of load and a fault, however short it is."""
    kinds = {one.kind for one in planned(**size).workloads}
    assert kinds == {*KINDS, "fault"}


def test_quick_is_planned_for_less_than_two_minutes() -> None:
    """A quick plan for two topologies takes less than two minutes, starts included."""
    assert seconds_of(planned(is_quick=True, topologies="microservices,monolith")) < 120


def test_names_of_workloads_are_their_own() -> None:
    """Every workload has a unique name, because a cell of the report is one workload."""
    names = [one.name for one in planned(is_full=True).workloads]
    assert len(set(names)) == len(names)


def test_own_workloads_are_every_combination() -> None:
    """Custom workloads are all combinations of concurrencies, rates and durations, with the given mix."""
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
    """The order of the topologies is reversed in every other run, and every run has every cell once."""
    plan = ComparisonPlan(topologies=("a", "b"), groups=tuple((one,) for one in series(1, 8)), runs=2)
    turns = [(run, group[0].concurrency, topology) for run, group, topology in plan.turns()]
    assert turns == [
        *((0, 1, "a"), (0, 1, "b"), (0, 8, "a"), (0, 8, "b")),
        *((1, 1, "b"), (1, 1, "a"), (1, 8, "b"), (1, 8, "a")),
    ]


def test_submits_without_a_request_id_go_round() -> None:
    """Submits without a request id and lists go to each node in turn, and two clients begin at different nodes."""
    router = Router(6)
    assert [router.for_submit("") for _ in range(12)] == [*range(6), *range(6)]
    assert [router.for_list() for _ in range(3)] == [0, 1, 2]
    assert Router(6, first=3).for_submit("") == 3


def test_requests_and_jobs_go_to_the_owner_of_their_id() -> None:
    """Request ids and job ids go to their owner by the same fixed rule, and spread over all nodes."""
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
