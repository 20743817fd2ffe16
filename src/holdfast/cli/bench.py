"""`holdfast bench`: a quick look at how fast this machine's disk and processor let it be."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.numbers import counted
from holdfast.cli.text import Json, say

if TYPE_CHECKING:
    from holdfast.lab.measures import Measure

#: Parts of the quick form, each of which speaks once a run.
_PARTS = 2


def bench(
    runs: Annotated[int, typer.Option(min=1, max=100, metavar="N", help="Runs of each measure.")] = 3,
    share: Annotated[
        float,
        typer.Option(min=0.01, max=1, metavar="N", help="Share of the work: quicker, less exact.", callback=counted),
    ] = 1.0,
    as_json: Json = False,
) -> None:
    """Measure submits and replay on this machine, as ratios to limits taken in the same run; `make bench` does more."""
    import uvloop
    from rich.console import Console
    from rich.progress import Progress

    from holdfast.lab import bench as lab

    is_seen = sys.stderr.isatty()
    with Progress(console=Console(stderr=True), disable=not is_seen, transient=True) as bar:
        task = bar.add_task("starting servers", total=_PARTS * runs)
        begun = 0

        def tell(text: str) -> None:
            nonlocal begun
            bar.update(task, description=text, completed=begun)
            begun += 1
            if not is_seen:
                say(text)

        measures = uvloop.run(_measure(runs, tell, share))
    if as_json:
        print(lab.as_json(measures))
    else:
        lab.report(measures, Console(width=None if sys.stdout.isatty() else _FILE_COLUMNS))


async def _measure(runs: int, tell: Callable[[str], None], share: float) -> "list[Measure]":
    from holdfast.lab.bench import replays, submits

    return [*await submits(runs, tell, share), *await replays(runs, tell, share)]


_FILE_COLUMNS = 150
