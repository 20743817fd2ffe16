"""`make bench-pipeline`: the pipeline beside Procrastinate, over the same PostgreSQL, as ratios taken in one run.

One private PostgreSQL that syncs every commit serves both, each trial in an empty database of its own. The sides take
turns, and begin in turns; only the one that is measured has processes. Ours is `holdfast up --topology pipeline` with
its defaults, asked through its gateway by the SDK; the other side is asked as its documentation says: asynchronous
tasks, `defer_async` and `batch_defer_async` over a pool of connections, workers by its own command that LISTEN.
Producers are a process of their own with the same number of callers at a time, the same batches and payloads. Both
sides store every end. No ends are told by Procrastinate, so for its latency its state is asked for every millisecond.
"""

import argparse
import os
import signal
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from holdfast.lab.bench import as_json, report
from holdfast.lab.measures import Measure, at_least, at_most
from holdfast.lab.pipeline import running
from holdfast.lab.pipeline.load import BATCH, BATCHES_AT_A_TIME, CALLERS

#: How many jobs of each kind a side gets: about as many as it takes the same time for.
COUNTS: dict[str, dict[str, int]] = {
    "ours": {"together": 12_800, "alone": 500, "batched": 120_000, "idle": 200, "end_to_end": 20_000},
    "procrastinate": {"together": 4_800, "alone": 500, "batched": 40_000, "idle": 200, "end_to_end": 4_000},
}
#: What is measured with so many worker processes: for each the number that suits Procrastinate best.
_PARTS = ((0, ("together", "alone", "batched")), (1, ("idle",)), (running.WORKERS, ("end_to_end",)))
Figures = dict[str, float]


def trial(cluster: running.Cluster, side: str) -> Figures:
    """Everything that is measured of one side: submits without workers, then the rest with workers."""
    figures: Figures = {}
    for workers, whats in _PARTS:
        with cluster.database() as database, running.SIDES[side](database, workers=workers) as environment:
            for what in whats:
                figures[what] = _figure(running.measure(environment, side, what, COUNTS[side][what]))
    return figures


def _figure(measured: dict[str, Any]) -> float:
    """A rate, or the median of times."""
    return float(measured["rate"]) if "rate" in measured else statistics.median(measured["seconds"])


def measures(rounds: list[tuple[Figures, Figures]]) -> list[Measure]:
    """Ratios of ours to the other's, round by round."""
    ratios = {what: [ours[what] / theirs[what] for ours, theirs in rounds] for what in rounds[0][0]}
    return [
        at_least(f"submits of one job each, {CALLERS} callers at a time", ratios["together"], 1.5),
        at_least(f"submits in batches of {BATCH}, {BATCHES_AT_A_TIME} at a time, in jobs", ratios["batched"], 3),
        at_least("no-op jobs from the first submit until all have ended", ratios["end_to_end"], 3),
        at_most("idle: one job at a time, from its submit until its end is known, p50", ratios["idle"], 3, "×"),
        at_least("for information: submits of one job each, one caller", ratios["alone"], 0),
    ]


def run(runs: int, say: Callable[[str], None]) -> list[Measure]:
    """So many rounds; the side that begins changes."""
    rounds = []
    with running.cluster() as cluster:
        for number in range(runs):
            figures: dict[str, Figures] = {}
            for side in ("ours", "procrastinate") if number % 2 == 0 else ("procrastinate", "ours"):
                say(f"round {number + 1} of {runs}: {side} (load {os.getloadavg()[0]:.1f})")
                figures[side] = trial(cluster, side)
            rounds.append((figures["ours"], figures["procrastinate"]))
            say(", ".join(f"{what} {figures['ours'][what] / other:.2f}" for what, other in rounds[-1][1].items()))
    return measures(rounds)


def main() -> int:
    """Prints a table and JSON; exits with 1 if something was missed."""
    parser = argparse.ArgumentParser(prog="make bench-pipeline", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="rounds (at least 3)")
    parser.add_argument("--json", type=Path, help="also write the JSON to this file")
    arguments = parser.parse_args()
    # So that everything that was started is ended, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    console = Console(stderr=True)
    measured = run(arguments.runs, lambda text: console.print(f"[dim]{text}[/dim]"))
    report(measured, Console(width=150))
    print(as_json(measured))
    if arguments.json:
        arguments.json.write_text(as_json(measured) + "\n")
    return 0 if all(measure.is_reached for measure in measured) else 1


if __name__ == "__main__":
    sys.exit(main())
