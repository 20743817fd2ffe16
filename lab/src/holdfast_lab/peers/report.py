"""The tables for a terminal, and for docs/benchmarks.md between its markers."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from holdfast.errors import FailedPreconditionError
from holdfast_lab.measure.measures import Measure
from holdfast_lab.measure.numbers import ABSENT, cell, number, spanned
from holdfast_lab.measure.tables import markdown as table
from holdfast_lab.peers.results import (
    FIGURES,
    TIMES,
    KillTrial,
    PeersResults,
    figure_of,
    figures,
    ranked,
    rates_of,
)
from holdfast_lab.peers.stores import SYNCED, UNSYNCED
from holdfast_lab.peers.targets import target_ratios
from holdfast_lab.peers.worker_kill import CAP_S, JOBS

BEGIN = "<!-- bench-peers: begin -->"
END = "<!-- bench-peers: end -->"
MODES = {UNSYNCED: "without sync", SYNCED: "synced"}
RATE_WORDS = """### Throughput

In multiples of the rate of the echo with 64 calls in flight; more is better. Median, with the spread over the rounds in
brackets.

*Synced*: a job is on disk when its submit returns. *Without sync*: it need not be. A system that is measured only
synced has the same figure in both columns. The last table says which system syncs."""
TIME_WORDS = """### Latency

In round trips of the same echo, one at a time; less is better."""
TARGET_WORDS = """### Targets

The ratio of Holdfast to one peer in the same round: median, with the spread over the rounds. Holdfast and beanstalkd
sync every job before they answer, the other peers do not."""
KILL_WORDS = f"""### A worker is killed

`kill -9` of one of two workers while {JOBS} jobs of one second run and wait.
Smallest and largest count over the rounds."""
Rows = list[list[str]]


def speed_rows(results: PeersResults, names: Sequence[str]) -> Rows:
    """A row for each system, a column for each of these figures in each mode."""
    found = figures(results.trials)
    return [
        [about.title, *(_cell(figure_of(found, name, mode, figure)) for figure in names for mode in MODES)]
        for name, about in results.systems.items()
    ]


def speed_header(names: Sequence[str]) -> list[str]:
    """The columns of `speed_rows`."""
    return ["system", *(f"{FIGURES[figure]}, {mode}" for figure in names for mode in MODES.values())]


def kill_rows(results: PeersResults) -> Rows:
    """A row for each system: the number of jobs by outcome, over the rounds."""
    return [
        [about.title, *_kill_cells([one for one in results.kills if one.system == name]), about.after_a_kill]
        for name, about in results.systems.items()
    ]


KILL_HEADER = [
    "system",
    f"finished of {JOBS} within {CAP_S:g} s",
    "running in the killed worker",
    "unfinished but kept",
    "lost",
    "started again",
    "finished twice",
    "seconds until all had finished",
    "by its documents, with its defaults",
]


def about_rows(results: PeersResults) -> Rows:
    """A row for each system: its version and settings."""
    return [[one.title, one.version, one.durability, one.settings] for one in results.systems.values()]


ABOUT_HEADER = ["system", "version", "are acknowledged jobs synced to disk?", "settings: two worker processes each"]


def leaders(results: PeersResults) -> list[str]:
    """For each figure and mode the first system, and its lead over the best of the other side, Holdfast or peers."""
    lines = []
    for name, title in FIGURES.items():
        for mode, words in MODES.items():
            row = ranked(results, mode, name)
            rivals = [one for one in row if _is_ours(results, one) != _is_ours(results, row[0])]
            if rivals:
                lines.append(f"{title}, {words}: {_comparison(results, row[0], rivals[0])}.")
    return lines


TARGET_HEADER = ["ratio", "target", "median (spread)", ""]


def target_rows(results: PeersResults) -> Rows:
    """A row for each target whose two systems were measured."""
    return [
        [one.name, one.reach, cell(one.values), "" if one.is_reached else "missed"] for one in target_ratios(results)
    ]


def markdown(results: PeersResults, plot: str) -> str:
    """The text between the markers."""
    rates = rates_of(results)
    facts = [f"- {name}: {value}" for name, value in results.facts.items()]
    parts = [
        "\n".join([*facts, f"- rounds: {_rounds(results)}"]),
        f"![Throughput and latency beside the peers]({plot})",
        RATE_WORDS,
        table(speed_header(rates), speed_rows(results, rates)),
        TIME_WORDS,
        table(speed_header(TIMES), speed_rows(results, TIMES)),
        "The first system of each figure, and the best of the other side, peers or Holdfast:\n\n"
        + "\n".join(f"- {line}" for line in leaders(results) or ["none: nothing to compare with."]),
        *((TARGET_WORDS, table(TARGET_HEADER, targets)) if (targets := target_rows(results)) else ()),
        KILL_WORDS,
        table(KILL_HEADER, kill_rows(results)),
        "### What was run\n\n" + table(ABOUT_HEADER, about_rows(results)),
    ]
    if results.errors:
        parts.append("### What failed\n\n" + "\n".join(f"- {line}" for line in results.errors))
    return "\n\n".join(parts)


def put_between_markers(document: Path, text: str) -> None:
    """Replace the text between the document's markers, and nothing else."""
    old = document.read_text() if document.exists() else ""
    if old.count(BEGIN) != 1 or old.count(END) != 1 or old.index(BEGIN) > old.index(END):
        raise FailedPreconditionError(f"{document} must have the lines {BEGIN} and {END} once each, in order")
    before, _, rest = old.partition(BEGIN)
    after = rest.partition(END)[2]
    document.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")


def show(results: PeersResults, console: Console) -> None:
    """Print the tables of figures on a terminal."""
    rates = rates_of(results)
    for title, header, rows in (
        ("Beside the peers: × a bare grpc.aio echo, 64 in flight", speed_header(rates), speed_rows(results, rates)),
        ("Beside the peers: round trips of the same echo", speed_header(TIMES), speed_rows(results, TIMES)),
        ("A worker is killed", KILL_HEADER[:-1], [row[:-1] for row in kill_rows(results)]),
    ):
        shown = Table(*(head.replace("`", "") for head in header), title=title, show_lines=True)
        for row in rows:
            shown.add_row(*row)
        console.print(shown)


def _cell(figure: Measure | None) -> str:
    return cell(figure.values if figure else ())


def _kill_cells(trials: list[KillTrial]) -> list[str]:
    kills = [trial.kill for trial in trials if trial.kill]
    if not kills:
        return [ABSENT] * (len(KILL_HEADER) - 2)
    names = ("finished", "running", "kept", "lost", "started_again", "finished_twice")
    all_done = all(kill.finished == kill.jobs for kill in kills)
    waited = f"{max(kill.waited_s for kill in kills):.1f} at most" if all_done else ABSENT
    return [*(spanned([getattr(kill, name) for kill in kills]) for name in names), waited]


def _is_ours(results: PeersResults, figure: Measure) -> bool:
    return results.systems[figure.name].is_ours


def _comparison(results: PeersResults, first: Measure, rival: Measure) -> str:
    factor = max(first.median, rival.median) / min(first.median, rival.median)
    ours, theirs = (f"{results.systems[one.name].title} ({number(one.median)})" for one in (first, rival))
    caution = "; their spreads overlap" if first.overlaps(rival) else ""
    return f"**{ours}**, {number(factor)} times as good as {theirs}{caution}"


def _rounds(results: PeersResults) -> str:
    speeds = 1 + max((trial.round for trial in results.trials), default=-1)
    kills = 1 + max((trial.round for trial in results.kills), default=-1)
    return f"{speeds} of each measure of speed, {kills} of kills"
