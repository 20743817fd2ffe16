"""`holdfast lab`: the same load on several topologies, and a report of what differs."""

import sys
from collections.abc import Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from holdfast.cli.text import Json, print_json, say
from holdfast.errors import ExitCode, FailedPreconditionError

if TYPE_CHECKING:
    import asyncio

    from holdfast.lab.compare.results import Results
    from holdfast.lab.compare.workloads import Plan

T = TypeVar("T")

app = typer.Typer(help="Compare topologies under load, and break them.", no_args_is_help=True)

_OWN = "a workload of your own: its kinds, submit-only, read-heavy, life-cycle, with commas"


@app.callback()
def lab() -> None:
    """Groups the commands."""


@app.command()
def compare(
    topologies: Annotated[str, typer.Option(metavar="A,B", help="What to compare, with commas.")] = (
        "embedded,microservices,monolith"
    ),
    out: Annotated[
        str, typer.Option(metavar="DIRECTORY", help="Where the report goes (default: below lab-results).")
    ] = "",
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="What all draws are made from.")] = 1,
    runs: Annotated[
        int, typer.Option(min=1, max=100, metavar="N", help="Runs of each; fewer than 3 prove nothing.")
    ] = 3,
    clients: Annotated[int, typer.Option(min=1, max=64, metavar="N", help="Client processes.")] = 2,
    is_quick: Annotated[
        bool, typer.Option("--quick", help="A look, in less than two minutes for two topologies.")
    ] = False,
    is_full: Annotated[bool, typer.Option("--full", help="Every workload, concurrency and job duration.")] = False,
    workloads: Annotated[str, typer.Option(metavar="KINDS", help=f"Instead of the usual set, {_OWN}.")] = "",
    concurrency: Annotated[str, typer.Option(metavar="N,N", help="How many are in flight, of your own workload.")] = "",
    rate: Annotated[str, typer.Option(metavar="R,R", help="How many begin in a second, as an open loop.")] = "",
    job_ms: Annotated[str, typer.Option(metavar="MS,MS", help="How long a job of your own workload works.")] = "",
    mix: Annotated[
        str,
        typer.Option(metavar="W,W,W,W,W", help="Weights of submit, status, result, cancel, list in your own workload."),
    ] = "",
    duration: Annotated[float | None, typer.Option(min=0.2, metavar="S", help="Length of your own workload.")] = None,
    warm_up: Annotated[float | None, typer.Option(min=0, metavar="S", help="What goes before it, uncounted.")] = None,
    fault: Annotated[float | None, typer.Option(min=2, metavar="S", help="Add one with a kill half-way.")] = None,
) -> None:
    """Load each topology with the same requests, in turns, and write report.md, report.html and the raw data.

    Without a choice the usual set takes about half an hour for three topologies; --full takes an hour and a half.
    """
    from holdfast.lab.compare.choices import Choice, plan_of

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
        raise FailedPreconditionError(f"no trial of {', '.join(silent)} gave figures; the report says why")


@app.command()
def report(
    folder: Annotated[str, typer.Argument(metavar="DIRECTORY", help="What `holdfast lab compare` left.")],
) -> None:
    """Write the report of a comparison again, from its results.json."""
    from holdfast.lab.compare.results import load

    _need_matplotlib()
    results = load(Path(folder))
    _finish(results, Path(folder))


@app.command()
def check(
    folder: Annotated[str, typer.Argument(metavar="DIRECTORY", help="A recorded history: run.json and *.jsonl.")],
    is_json: Json = False,
    evidence: Annotated[int, typer.Option(min=0, metavar="N", help="Lines of evidence for each finding.")] = 40,
) -> None:
    """Judge a recorded history: 0 every promise was kept, 1 one was broken, 5 not all were put to the test."""
    from holdfast.lab.check import Status, judge, render
    from holdfast.lab.check.rendering import as_json

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
    topology: Annotated[str, typer.Option(metavar="NAME", help="Which design to break.")] = "embedded",
    minutes: Annotated[float, typer.Option(metavar="N", help="How long faults are fired.")] = 1.0,
    seed: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="What the load and the faults are drawn from (default: any).")
    ] = None,
    faults: Annotated[str, typer.Option(metavar="A,B", help="Which faults, with commas; all; or none.")] = "all",
    clients: Annotated[int, typer.Option(min=1, max=64, metavar="N", help="Who ask at the same time.")] = 6,
    out: Annotated[
        str, typer.Option(metavar="DIRECTORY", help="Where the history and the report go (default: below lab-results).")
    ] = "",
    evidence: Annotated[
        str, typer.Option(metavar="DIRECTORY", help="Keep seed, commit, command and verdict there, as a small file.")
    ] = "",
) -> None:
    """Run real processes under load, break them, and judge by the records whether every promise was kept.

    Ends with 0 if all were kept, with 1 if one was broken, with 5 if the run does not prove enough. Ctrl-C ends it
    early: what was recorded is judged, and it ends with 130 if that shows no promise broken.
    """
    import asyncio
    import secrets
    import shlex
    from importlib.metadata import version

    from holdfast.lab.check.rendering import render
    from holdfast.lab.check.ruling import Status
    from holdfast.lab.evidence import Campaign, keep
    from holdfast.lab.torture import performing, report
    from holdfast.lab.torture.running import Settings

    _need_matplotlib()
    drawn = seed if seed is not None else secrets.randbelow(1_000_000)
    options = ["--minutes", f"{minutes:g}", "--seed", str(drawn), "--faults", faults, "--clients", str(clients)]
    settings = Settings(
        topology=performing.checked_topology(topology),
        minutes=performing.checked_minutes(minutes),
        seed=drawn,
        faults=performing.faults_of(faults),
        folder=(folder := _folder(out)),
        clients=clients,
        version=version("holdfast"),
        command=shlex.join(["holdfast", "lab", "torture", "--topology", topology, *options]),
    )
    campaign = Campaign("torture", topology)
    say(f"SEED={drawn}: {topology} for {minutes:g} minutes, into {folder}")
    early = asyncio.run(_until_stopped(performing.perform(settings, say)))
    if early:
        say(f"the run ended early: {early}")
    verdict = performing.conclude(folder, early)
    print(render(verdict))
    if not early and verdict.ruling("faults").status is Status.UNKNOWN:
        print("Not every fault came about: give it more --minutes, or name fewer --faults.")
    print(f"report: {folder / report.REPORT}; the folder has {report.size_of(folder)}")
    if evidence:
        print(f"evidence: {keep(Path(evidence), report.evidence_of(campaign, folder, verdict, early))}")
    if early == performing.INTERRUPTED and verdict.status is not Status.BROKEN:
        raise KeyboardInterrupt
    statuses = {Status.KEPT: ExitCode.DONE, Status.BROKEN: ExitCode.JOB_FAILED}
    raise typer.Exit(statuses.get(verdict.status, ExitCode.UNKNOWN))


def _run(plan: "Plan", folder: Path) -> "Results":
    import shlex

    import uvloop
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.text import Text

    from holdfast.lab.compare.machine import facts
    from holdfast.lab.compare.results import keep
    from holdfast.lab.compare.rounds import Comparison
    from holdfast.lab.compare.workloads import seconds_of

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
    """The work; TERM and INT end it, and its processes with it. A second one changes nothing: who tidies up goes on."""
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
        say("ending: what was started is stopped, and what was broken is mended")
        task.cancel()


def _finish(results: "Results", folder: Path) -> None:
    from holdfast.lab.compare.findings import findings
    from holdfast.lab.compare.report import write

    write(results, folder)
    for heading, sentences in findings(results).items():
        print(f"{heading}:")
        for sentence in sentences:
            print(f"  - {sentence.replace('**', '')}")
    print(f"report: {folder / 'report.html'}")


def _folder(out: str) -> Path:
    """A new or empty one: a report beside the data of another would mislead."""
    folder = Path(out) if out else Path("lab-results") / datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FailedPreconditionError(f"expected --out to be a new or empty directory, got {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _need_matplotlib() -> None:
    """Before anything is measured: hours of it would end without pictures."""
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise FailedPreconditionError("the report needs matplotlib: pip install 'holdfast[lab]'")


def _long(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes} minutes" if minutes > 1 else f"{round(seconds)} seconds"
