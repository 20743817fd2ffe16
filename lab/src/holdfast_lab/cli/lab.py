"""`holdfast lab`: compares topologies under the same load, and tests them with faults."""

import sys
from collections.abc import Coroutine
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from holdfast.cli.number_options import number, whole_number
from holdfast.cli.text import Json, print_json, say
from holdfast.errors import ExitCode, FailedPreconditionError

if TYPE_CHECKING:
    import asyncio

    from holdfast_lab.compare.results import ComparisonResults
    from holdfast_lab.compare.workloads import ComparisonPlan

T = TypeVar("T")

app = typer.Typer(help="Compare topologies under load, and inject faults.", no_args_is_help=True)

_OWN = "comma-separated kinds of a workload of your own: submit-only, read-heavy, life-cycle"


@app.callback()
def lab() -> None:
    """Group the commands."""


@app.command()
def compare(
    topologies: Annotated[str, typer.Option(metavar="A,B", help="Comma-separated topologies to compare.")] = (
        "embedded,microservices,monolith"
    ),
    out: Annotated[
        str, typer.Option(metavar="DIRECTORY", help="Directory of the report (default: a new one in lab-results).")
    ] = "",
    seed: Annotated[
        int, typer.Option(parser=whole_number("--seed", 0), metavar="N", help="Seed of all random choices.")
    ] = 1,
    runs: Annotated[
        int,
        typer.Option(
            parser=whole_number("--runs", 1, 100),
            metavar="N",
            help="Runs of each workload; use 3 or more for a reliable result.",
        ),
    ] = 3,
    clients: Annotated[
        int, typer.Option(parser=whole_number("--clients", 1, 64), metavar="N", help="Number of client processes.")
    ] = 2,
    is_quick: Annotated[
        bool, typer.Option("--quick", help="A short comparison: under two minutes for two topologies.")
    ] = False,
    is_full: Annotated[bool, typer.Option("--full", help="Every workload, concurrency and job duration.")] = False,
    workloads: Annotated[str, typer.Option(metavar="KINDS", help=f"Instead of the default set, {_OWN}.")] = "",
    concurrency: Annotated[str, typer.Option(metavar="N,N", help="Requests in flight, of your own workload.")] = "",
    rate: Annotated[str, typer.Option(metavar="R,R", help="Requests started per second, as an open loop.")] = "",
    job_ms: Annotated[str, typer.Option(metavar="MS,MS", help="Duration of a job of your own workload.")] = "",
    mix: Annotated[
        str,
        typer.Option(metavar="W,W,W,W,W", help="Weights of submit, status, result, cancel, list in a custom workload."),
    ] = "",
    duration: Annotated[
        float | None, typer.Option(parser=number("--duration", 0.2), metavar="S", help="Duration of your own workload.")
    ] = None,
    warm_up: Annotated[
        float | None,
        typer.Option(
            parser=number("--warm-up", 0), metavar="S", help="Duration of its warm-up, which is not measured."
        ),
    ] = None,
    fault: Annotated[
        float | None,
        typer.Option(parser=number("--fault", 2), metavar="S", help="Add a run of this duration with a kill half-way."),
    ] = None,
) -> None:
    """Compare topologies under the same load.

    Loads each topology with the same requests, in turn, and writes report.md, report.html and the raw data. Without
    options, the default set takes about half an hour for three topologies; --full takes an hour and a half.
    """
    from holdfast_lab.compare.choices import Choice, plan_of

    choice = Choice(
        topologies=topologies,
        is_quick=is_quick,
        is_full=is_full,
        workloads=workloads,
        concurrency=concurrency,
        rate=rate,
        job_ms=job_ms,
        mix=mix,
        duration_s=duration,
        warm_up_s=warm_up,
        fault_s=fault,
    )
    plan = plan_of(choice, runs=runs, seed=seed, clients=clients)
    _need_matplotlib()
    folder = _folder(out)
    results = _run(plan, folder)
    _finish(results, folder)
    silent = [
        name for name in plan.topologies if not any(one.is_good for one in results.trials if one.topology == name)
    ]
    if silent:
        raise FailedPreconditionError(
            f"no trial of {', '.join(silent)} produced results; see the report for the reasons"
        )


@app.command()
def report(
    folder: Annotated[str, typer.Argument(metavar="DIRECTORY", help="Directory that `holdfast lab compare` wrote.")],
) -> None:
    """Write the report of a comparison again, from its results.json."""
    from holdfast_lab.compare.results import load

    _need_matplotlib()
    results = load(Path(folder))
    _finish(results, Path(folder))


@app.command()
def check(
    folder: Annotated[str, typer.Argument(metavar="DIRECTORY", help="A recorded history: run.json and *.jsonl.")],
    is_json: Json = False,
    evidence: Annotated[
        int, typer.Option(parser=whole_number("--evidence", 0), metavar="N", help="Lines of evidence per finding.")
    ] = 40,
) -> None:
    """Check a recorded history. Exits with 0 if every guarantee held, 1 if one was broken, 5 if not all were tested."""
    from holdfast_lab.check import Status, judge, render
    from holdfast_lab.check.verdict_report import as_json

    verdict = judge(Path(folder))
    if is_json:
        print_json(as_json(verdict, evidence))
    else:
        print(render(verdict, evidence))
    if verdict.status is Status.BROKEN:
        raise typer.Exit(ExitCode.JOB_FAILED)
    if verdict.status is Status.UNKNOWN:
        raise typer.Exit(ExitCode.UNKNOWN)


@app.command()
def torture(
    topology: Annotated[str, typer.Option(metavar="NAME", help="Topology to test.")] = "embedded",
    minutes: Annotated[float, typer.Option(metavar="N", help="Minutes of fault injection.")] = 1.0,
    seed: Annotated[
        int | None,
        typer.Option(
            parser=whole_number("--seed", 0), metavar="N", help="Seed of the load and the faults (default: random)."
        ),
    ] = None,
    faults: Annotated[str, typer.Option(metavar="A,B", help="Comma-separated faults, all, or none.")] = "all",
    clients: Annotated[
        int, typer.Option(parser=whole_number("--clients", 1, 64), metavar="N", help="Number of concurrent clients.")
    ] = 6,
    out: Annotated[
        str,
        typer.Option(
            metavar="DIRECTORY", help="Directory of the history and the report (default: a new one in lab-results)."
        ),
    ] = "",
    evidence: Annotated[
        str,
        typer.Option(
            metavar="DIRECTORY", help="Also write seed, commit, command and verdict to a small file in this directory."
        ),
    ] = "",
) -> None:
    """Inject faults into real processes under load.

    Checks from the records whether every guarantee held. Exits with 0 if all held, 1 if one was broken, 5 if the run
    does not prove enough. Ctrl-C ends the run early: the records are checked, and the exit code is 130 unless a
    guarantee was broken.
    """
    import asyncio
    import secrets
    import shlex
    from importlib.metadata import version

    from holdfast_lab.check.verdict import Status
    from holdfast_lab.check.verdict_report import render
    from holdfast_lab.evidence import Campaign, keep
    from holdfast_lab.torture import campaign, report
    from holdfast_lab.torture.run import TortureSettings

    _need_matplotlib()
    drawn = seed if seed is not None else secrets.randbelow(1_000_000)
    options = ["--minutes", f"{minutes:g}", "--seed", str(drawn), "--faults", faults, "--clients", str(clients)]
    settings = TortureSettings(
        topology=campaign.checked_topology(topology),
        minutes=campaign.checked_minutes(minutes),
        seed=drawn,
        faults=campaign.faults_of(faults),
        folder=(folder := _folder(out)),
        clients=clients,
        version=version("holdfast"),
        command=shlex.join(["holdfast", "lab", "torture", "--topology", topology, *options]),
    )
    begun = Campaign("torture", topology)
    say(f"SEED={drawn}: {topology} for {minutes:g} minutes, into {folder}")
    early = asyncio.run(_until_stopped(campaign.perform(settings, say)))
    if early:
        say(f"the run ended early: {early}")
    verdict = campaign.conclude(folder, early)
    print(render(verdict))
    if not early and verdict.ruling("faults").status is Status.UNKNOWN:
        print("Not every fault occurred: use more --minutes or fewer --faults.")
    print(f"report: {folder / report.REPORT}; the folder has {report.size_of(folder)}")
    if evidence:
        print(f"evidence: {keep(Path(evidence), report.evidence_of(begun, folder, verdict, early))}")
    if early == campaign.INTERRUPTED and verdict.status is not Status.BROKEN:
        raise KeyboardInterrupt
    statuses = {Status.KEPT: ExitCode.DONE, Status.BROKEN: ExitCode.JOB_FAILED}
    raise typer.Exit(statuses.get(verdict.status, ExitCode.UNKNOWN))


@app.command()
def trace(
    calls: Annotated[
        int,
        typer.Option(parser=whole_number("--calls", 10, 100_000), metavar="N", help="Number of calls for each trace."),
    ] = 500,
    out: Annotated[
        str, typer.Option(metavar="DIRECTORY", help="Directory for trace.md and trace.svg (default: print the tables).")
    ] = "",
) -> None:
    """Show how long each step of a submit takes.

    Traces one submit and one job at a time, over each link, and shows the median of every step.
    """
    from holdfast_lab.trace.campaign import traced
    from holdfast_lab.trace.report import picture, report_of

    folder = _folder(out) if out else None
    if folder is not None:
        _need_matplotlib()
    traces = traced(calls, say)
    if folder is None:
        print(report_of(traces), end="")
        return
    (folder / "trace.md").write_text(report_of(traces))
    (folder / "trace.svg").write_bytes(picture(traces))
    print(f"{folder / 'trace.md'} has the tables, and trace.svg beside it the picture")


def _run(plan: "ComparisonPlan", folder: Path) -> "ComparisonResults":
    import shlex

    import uvloop
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.text import Text

    from holdfast_lab.compare.results import keep
    from holdfast_lab.compare.rounds import Comparison
    from holdfast_lab.compare.workloads import seconds_of
    from holdfast_lab.measure.machine import facts

    say(f"comparing {', '.join(plan.topologies)}: about {_long(seconds_of(plan))}, into {folder}")
    is_seen = sys.stderr.isatty()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not is_seen, transient=True) as bar:
        task = bar.add_task("comparing", total=None)

        def tell(done: int, total: int, line: str) -> None:
            bar.update(task, completed=done, total=total)
            if is_seen:
                bar.console.print(Text(line))
            else:
                say(f"[{done}/{total}] {line}")

        command = shlex.join(["holdfast", *sys.argv[1:]])
        results = uvloop.run(_until_stopped(Comparison(plan, folder, tell).run(facts(command))))
    keep(results, folder)
    return results


async def _until_stopped(work: Coroutine[Any, Any, T]) -> T:
    """Runs the work until TERM or INT, which also end its processes. A second signal does not interrupt the cleanup."""
    import asyncio

    from holdfast.process.signals import on_stop

    task = asyncio.create_task(work)
    with on_stop(lambda: _cancel(task)):
        try:
            return await task
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None


def _cancel(task: "asyncio.Task[Any]") -> None:
    if not task.cancelling():
        say("stopping: ending all processes and undoing the faults")
        task.cancel()


def _finish(results: "ComparisonResults", folder: Path) -> None:
    from holdfast_lab.compare.findings import findings
    from holdfast_lab.compare.report import write

    write(results, folder)
    for heading, sentences in findings(results).items():
        print(f"{heading}:")
        for sentence in sentences:
            print(f"  - {sentence.replace('**', '')}")
    print(f"report: {folder / 'report.html'}")


def _folder(out: str) -> Path:
    """Returns a new or empty directory: a report next to data of another run would mislead."""
    if not out:
        return _new_folder(Path("lab-results"), datetime.now(UTC).strftime("%Y%m%d-%H%M%S"))
    folder = Path(out)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FailedPreconditionError(f"--out must be a new or empty directory, got {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _new_folder(parent: Path, name: str) -> Path:
    """Creates a directory that no other run has, although several runs may begin in the same second."""
    parent.mkdir(parents=True, exist_ok=True)
    for index in count(1):
        folder = parent / (name if index == 1 else f"{name}-{index}")
        with suppress(FileExistsError):
            folder.mkdir()
            return folder
    raise AssertionError("count() has no end")


def _need_matplotlib() -> None:
    """Fails before a measurement of hours if the report cannot be drawn."""
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise FailedPreconditionError("the report needs matplotlib; install it with `pip install matplotlib`")


def _long(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes} minutes" if minutes > 1 else f"{round(seconds)} seconds"
