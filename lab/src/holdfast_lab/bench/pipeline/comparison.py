"""`make bench-pipeline`: the pipeline beside Procrastinate, over the same PostgreSQL, as ratios taken in one run.

One private PostgreSQL that syncs every commit serves both sides, each trial in an empty database of its own. The sides
take turns; only the measured one has processes. Ours is `holdfast up --topology pipeline` with its defaults; producers
use the SDK through its gateway. Producers of Procrastinate do as its documentation says: asynchronous tasks,
`defer_async` and `batch_defer_async` over a pool of connections, workers by its own command that LISTEN. Producers are
a process of their own with the same number of callers, the same batches and payloads. Both sides store every end.
Procrastinate does not report ends to producers, so for its latency the state is polled every millisecond.
"""

import os
import signal
import statistics
import sys
from typing import Any

from holdfast_lab.bench.pipeline import processes
from holdfast_lab.bench.pipeline.load import BATCH, BATCHES_AT_A_TIME, CALLERS
from holdfast_lab.measure.measures import Measure, at_least, at_most, conclude, parser, progress
from holdfast_lab.measure.rounds import Say, orders

#: Jobs of each kind for a side, so that both sides take about the same time.
COUNTS: dict[str, dict[str, int]] = {
    "ours": {"together": 12_800, "alone": 500, "batched": 120_000, "idle": 200, "end_to_end": 20_000},
    "procrastinate": {"together": 4_800, "alone": 500, "batched": 40_000, "idle": 200, "end_to_end": 4_000},
}
#: The number of worker processes for each measurement: the one with which Procrastinate is fastest.
_PARTS = ((0, ("together", "alone", "batched")), (1, ("idle",)), (processes.WORKERS, ("end_to_end",)))
Figures = dict[str, float]


def trial(cluster: processes.Cluster, side: str) -> Figures:
    """All figures of one side: submits without workers, then the rest with workers."""
    figures: Figures = {}
    for workers, whats in _PARTS:
        with cluster.database() as database, processes.SIDES[side](database, workers=workers) as environment:
            for what in whats:
                figures[what] = _figure(processes.measure(environment, side, what, COUNTS[side][what]))
    return figures


def _figure(measured: dict[str, Any]) -> float:
    """A rate, or the median of times."""
    return float(measured["rate"]) if "rate" in measured else statistics.median(measured["seconds"])


def measures(rounds: list[tuple[Figures, Figures]]) -> list[Measure]:
    """Ratios of ours to Procrastinate's, round by round."""
    ratios = {what: [ours[what] / theirs[what] for ours, theirs in rounds] for what in rounds[0][0]}
    return [
        at_least(f"submits of one job each, {CALLERS} callers at a time", ratios["together"], 1.5),
        at_least(f"submits in batches of {BATCH}, {BATCHES_AT_A_TIME} at a time, in jobs", ratios["batched"], 3),
        at_least("no-op jobs from the first submit until all have ended", ratios["end_to_end"], 3),
        at_most("idle: one job at a time, from its submit until its end is known, p50", ratios["idle"], 3),
        at_least("for information: submits of one job each, one caller", ratios["alone"], 0),
    ]


def run(runs: int, say: Say) -> list[Measure]:
    """Rounds of both sides."""
    rounds = []
    with processes.cluster() as cluster:
        for number, sides in orders(("ours", "procrastinate"), runs):
            figures: dict[str, Figures] = {}
            for side in sides:
                say(f"round {number + 1} of {runs}: {side} (load {os.getloadavg()[0]:.1f})")
                figures[side] = trial(cluster, side)
            rounds.append((figures["ours"], figures["procrastinate"]))
            say(", ".join(f"{what} {figures['ours'][what] / other:.2f}" for what, other in rounds[-1][1].items()))
    return measures(rounds)


def main() -> int:
    """Print a table and JSON; the exit status is 1 if a target was missed."""
    arguments = parser("make bench-pipeline", __doc__).parse_args()
    # TERM raises SystemExit, so that all started processes are ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    return conclude(run(arguments.runs, progress()), arguments.json)


if __name__ == "__main__":
    sys.exit(main())
