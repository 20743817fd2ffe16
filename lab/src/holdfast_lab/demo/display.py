"""Output of the demo: progress bars on a terminal, plain lines elsewhere, and tables at the end."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from holdfast import JobView
from holdfast.core.history import Entry
from holdfast.core.lifecycle import TERMINAL
from holdfast_lab.demo.plan import DemoPlan, Group, all_jobs, ended

_LINE_EVERY_S = 1.0


class Display(Protocol):
    """The output of the demo while it runs."""

    def say(self, text: str) -> None:
        """Print a line."""
        ...

    def show(self, views: Mapping[str, JobView]) -> None:
        """Show the progress of all jobs."""
        ...


@contextmanager
def display(console: Console, plan: DemoPlan) -> Iterator[Display]:
    """Bars on a terminal, else lines."""
    if not console.is_terminal:
        yield Lines(console, plan.groups)
        return
    columns = (
        TextColumn("{task.description:<10}"),
        BarColumn(complete_style="cyan", finished_style="green"),  # names that a terminal of 16 colors has
        MofNCompleteColumn(),
        TextColumn("{task.fields[now]}"),
    )
    with Progress(*columns, console=console) as progress:
        yield Bars(progress, plan.groups)


class Bars:
    """One bar for each group."""

    def __init__(self, progress: Progress, groups: Sequence[Group]) -> None:
        self._progress = progress
        self._bars = {progress.add_task(group.name, total=len(group.jobs), now=""): group for group in groups}

    def say(self, text: str) -> None:
        self._progress.console.print(text, highlight=False)

    def show(self, views: Mapping[str, JobView]) -> None:
        for bar, group in self._bars.items():
            self._progress.update(bar, completed=ended(group, views), now=_now(group, views))


class Lines:
    """One line per second, with the numbers of all groups."""

    def __init__(self, console: Console, groups: Sequence[Group]) -> None:
        self._console = console
        self._groups = groups
        self._next_s = 0.0

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)

    def show(self, views: Mapping[str, JobView]) -> None:
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + _LINE_EVERY_S
        numbers = ", ".join(f"{group.name} {ended(group, views)}/{len(group.jobs)}" for group in self._groups)
        done = sum(ended(group, views) for group in self._groups)
        self.say(f"  {done} of {len(all_jobs(self._groups))} jobs ended: {numbers}")


def _now(group: Group, views: Mapping[str, JobView]) -> str:
    """The progress message of a single job, or the description of a group."""
    view = views[group.jobs[0].id]
    if len(group.jobs) > 1 or view.state in TERMINAL:
        return group.shows
    said = f"{view.progress.fraction:.0%} on {view.worker}" if view.progress and view.worker else ""
    return f"{group.shows} · {view.state.name}{f' · {said}' if said else ''}"


def summary(groups: Sequence[Group], views: Mapping[str, JobView]) -> Table:
    """A table of how every group ended, with its failures."""
    table = Table("jobs", "what they show", "ended", "retries", "losses", "as expected")
    for group in groups:
        found = [views[job.id] for job in group.jobs]
        states = {view.state for view in found}
        names = ", ".join(state.name for state in sorted(states))
        numbers = str(sum(view.failures for view in found)), str(sum(view.losses for view in found))
        is_right = states == {group.expected}
        table.add_row(f"{len(found)} {group.name}", group.shows, names, *numbers, "yes" if is_right else "NO")
    return table


def history(entries: Sequence[Entry]) -> Table:
    """A table of the events of one job; of consecutive progress events only the first and the last."""
    table = Table("time", "what happened", "state", "worker", "more")
    for before, entry, after in zip([None, *entries], entries, [*entries[1:], None], strict=False):
        if all(near and near.what == entry.what == "progress" for near in (before, after)):
            continue
        at = datetime.fromtimestamp(entry.at_ms / 1_000, UTC).strftime("%H:%M:%S.%f")[:-3]
        table.add_row(at, entry.what, entry.state, entry.worker, entry.reason)
    return table
