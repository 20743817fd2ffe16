"""`holdfast lab compare`: real topologies, real clients, and nothing left behind."""

import os
import signal
import uuid
from functools import partial
from pathlib import Path

import pytest

from holdfast_lab.compare.messages import count_messages
from holdfast_lab.compare.records import OK, Records
from holdfast_lab.compare.results import ComparisonResults, load, load_raw
from holdfast_lab.compare.rounds import Comparison
from holdfast_lab.compare.topologies import TOPOLOGIES, Topology, TopologyError, started
from holdfast_lab.compare.workloads import LIST, ComparisonPlan, closed
from holdfast_lab.measure.process_tree import Meter, argv, tree
from tests.e2e.fleet import Fleet, Program
from tests.e2e.wait_until import eventually

MARK = "LAB_TEST_MARK"
#: The code of a request if the machine stalls for longer than its deadline of one second.
LATE = "DEADLINE_EXCEEDED"
BROKEN = Topology(
    name="broken",
    title="a topology that cannot start",
    arguments=("--slots", "none"),
    ingress="none",
    root_role="server",
    victim="worker",
    fault="nothing",
)


def marked(mark: str) -> list[int]:
    """All processes that inherited this mark."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def follow(program: Program) -> None:
    """Waits until the program ends; fails if it prints no line of progress for too long."""
    while program.is_running():
        seen = len(program.log.splitlines())
        eventually(partial(_has_moved, program, seen), what=f"progress after {seen} lines")


def _has_moved(program: Program, seen: int) -> bool:
    return len(program.log.splitlines()) > seen or not program.is_running()


def runs_of(results: ComparisonResults, topology: str, workload: str) -> list[int]:
    return sorted(trial.run for trial in results.of(topology, workload))


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_comparison_leaves_a_report_and_no_process(fleet: Fleet) -> None:
    """A comparison of two topologies writes a report, pictures and raw data, has no refusals, and leaves no process."""
    mark, out = uuid.uuid4().hex, fleet.folder / "out"
    load_ = ("--workloads", "life-cycle", "--concurrency", "4", "--job-ms", "0", "--duration", "1", "--warm-up", "0.3")
    options = ("--topologies", "embedded,microservices", *load_, "--fault", "3", "--out", str(out))
    program = fleet.start("lab", "compare", *options, LAB_TEST_MARK=mark)
    follow(program)
    assert program.wait() == 0, program.log
    assert marked(mark) == []
    results = load(out)
    assert [trial.refusal for trial in results.trials if trial.refusal] == []
    for workload in results.plan.workloads:
        for topology in results.plan.topologies:
            assert runs_of(results, topology, workload.name) == [0, 1, 2]
            if not workload.has_fault:
                errors = [trial.errors for trial in results.of(topology, workload.name)]
                assert {} in errors
                assert {code for one in errors for code in one} <= {LATE}
    _check_costs(results)
    text = (out / "report.md").read_text()
    assert "### embedded and microservices" in text
    assert "  - jobs per second: " in program.output
    assert (out / "report.html").read_text().count("<svg") == 3
    _check_raw(results, out)


def _check_costs(results: ComparisonResults) -> None:
    """Checks that CPU time and memory were measured for every role, and that messages were counted."""
    roles = {
        "embedded": {"server", "worker"},
        "microservices": {"supervisor", "gateway", "job", "queue", "coordinator", "result", "worker"},
    }
    for trial in results.trials:
        assert set(trial.usage) == roles[trial.topology]
        # A killed process may not have been replaced when the load ends.
        killed = {trial.fault.role} if trial.fault else set()
        assert all(trial.usage[role].memory_bytes > 0 for role in trial.usage.keys() - killed)
        assert trial.cpu_s > 0
        assert trial.fault is None or trial.fault.role == TOPOLOGIES[trial.topology].victim
    counts = {one.topology: one.per_job for one in results.messages}
    assert 2 <= counts["embedded"] < counts["microservices"]


def _check_raw(results: ComparisonResults, out: Path) -> None:
    """Checks that the raw records of every trial give its figures."""
    files = sorted((out / "raw").glob("*.msgpack.gz"))
    assert len(files) == len(results.trials)
    for file in files:
        raw = load_raw(file)
        (trial,) = [one for one in results.of(raw.topology, raw.workload) if one.run == raw.run]
        rows = list(Records.merged([raw.rows]).requests())
        assert trial.asked == sum(1 for row in rows if raw.begin <= row.intended < raw.end)
        ended = [row for row in rows if raw.begin <= row.end < raw.end and row.code == OK and row.method != LIST]
        assert trial.requests_per_s == pytest.approx(len(ended) / trial.duration_s)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_comparison_leaves_no_process(fleet: Fleet, number: signal.Signals) -> None:
    """A signal in the middle of a load ends clients and servers too."""
    mark = uuid.uuid4().hex
    program = fleet.start("lab", "compare", "--topologies", "monolith", "--out", "out", LAB_TEST_MARK=mark)
    client = "holdfast_lab.compare.client_process"
    eventually(lambda: any(client in argv(pid) for pid in marked(mark)), what="a client at work")
    program.signal(number)
    assert program.wait() == 130
    assert marked(mark) == []


def test_bad_arguments_and_places_are_refused_at_once(fleet: Fleet) -> None:
    """Wrong arguments and folders are refused before anything is started, in one line with the expected value."""
    unknown = fleet.start("lab", "compare", "--topologies", "embedded,nonsense")
    assert unknown.wait() == 2
    assert "--topologies must be comma-separated, different ones of embedded, microservices, monolith" in unknown.log
    (fleet.folder / "full").mkdir()
    (fleet.folder / "full" / "something").touch()
    taken = fleet.start("lab", "compare", "--out", "full")
    assert taken.wait() == 4
    assert taken.log == "holdfast: --out must be a new or empty directory, got full\n"
    nothing = fleet.start("lab", "report", "full")
    assert nothing.wait() == 4
    assert "results.json must be the results of a comparison" in nothing.log


async def test_topology_that_cannot_start_is_a_refusal_among_the_results(tmp_path: Path) -> None:
    """A topology that cannot start is listed with its reason, and the others are measured."""
    load_ = closed("submit-only", 2, 0, duration_s=0.3, warm_up_s=0.1)
    plan = ComparisonPlan(topologies=("broken", "embedded"), groups=((load_,),), runs=1, clients=1, counted_jobs=20)
    lines: list[str] = []
    table = {**TOPOLOGIES, "broken": BROKEN}
    comparison = Comparison(plan, tmp_path, lambda _done, _total, line: lines.append(line), table)
    results = await comparison.run({})
    assert [trial.is_good for trial in results.trials] == [False, True]
    assert "slots must be" in results.trials[0].refusal
    assert "REFUSED" in lines[0]
    assert [bool(one.refusal) for one in results.messages] == [True, False]
    assert results.messages[1].per_job > 2  # a submit, its reply, and a share of the messages to workers


async def test_messages_of_an_embedded_job_are_counted() -> None:
    """A submit counts as two messages, and the messages of the worker's stream are counted too."""
    messages = await count_messages(TOPOLOGIES["embedded"], 30)
    assert messages.refusal == ""
    assert messages.by_method["/taskqueue.v1.TaskQueuePublicService/SubmitJob"] == 60
    assert messages.by_method["wire/work"] >= 4


async def test_processes_of_a_topology_are_known_by_their_roles_and_end_with_it() -> None:
    """Server and worker are distinguished by their command lines, and both have ended after the block."""
    async with started(TOPOLOGIES["embedded"]) as running:
        meter = Meter(running.pid, running.topology.role)
        meter.begin()
        usage = meter.usage()
        assert {role: one.processes for role, one in usage.items()} == {"server": 1, "worker": 1}
        assert all(one.memory_bytes > 1_000_000 for one in usage.values())
        pids = tree(running.pid)
        assert meter.pids("worker") == [pid for pid in pids if pid != running.pid]
        os.kill(running.pid, 0)
    assert [pid for pid in pids if "holdfast" in argv(pid)] == []
    assert running.troubles == []


async def test_topology_that_does_not_start_says_why() -> None:
    """The error contains the last lines of the process's log."""
    with pytest.raises(TopologyError, match="slots must be"):
        async with started(BROKEN):
            pass
