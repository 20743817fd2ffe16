"""`holdfast bench`: a quick measurement of Holdfast on this machine."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.number_options import number, whole_number
from holdfast.cli.text import Json, say

if TYPE_CHECKING:
    from holdfast_lab.measure.measures import Measure
    from holdfast_lab.measure.rounds import Say

#: Parts of the quick bench, each of which prints one line for each run.
_PARTS = 2
_FILE_COLUMNS = 150


def bench(
    runs: Annotated[
        int,
        typer.Option(parser=whole_number("--runs", 1, 100), metavar="N", help="Number of runs of each measurement."),
    ] = 3,
    share: Annotated[
        float,
        typer.Option(
            parser=number("--share", 0.01, 1), metavar="N", help="Share of the work: less is faster and less exact."
        ),
    ] = 1.0,
    as_json: Json = False,
) -> None:
    """Measure submits and replay on this machine, as ratios to limits of the same run; `make bench` measures more."""
    import uvloop
    from rich.console import Console
    from rich.progress import Progress

    from holdfast_lab.measure import measures as lab

    is_terminal = sys.stderr.isatty()
    with Progress(console=Console(stderr=True), disable=not is_terminal, transient=True) as bar:
        task = bar.add_task("starting servers", total=_PARTS * runs)
        begun = 0

        def tell(text: str) -> None:
            nonlocal begun
            bar.update(task, description=text, completed=begun)
            begun += 1
            if not is_terminal:
                say(text)

        measures = uvloop.run(_measure(runs, tell, share))
    if as_json:
        print(lab.as_json(measures))
    else:
        lab.print_table(measures, None if sys.stdout.isatty() else _FILE_COLUMNS)


async def _measure(runs: int, tell: "Say", share: float) -> "list[Measure]":
    from holdfast_lab.bench.throughput import replays, submits

    return [*await submits(runs, tell, share), *await replays(runs, tell, share)]
