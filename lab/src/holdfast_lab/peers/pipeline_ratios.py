"""The pipeline to Procrastinate, round by round: the ratios that `make bench-pipeline` prints."""

from holdfast_lab.measure.measures import Measure, at_least, at_most
from holdfast_lab.peers.results import PeersResults
from holdfast_lab.peers.system import BATCHES, CALLERS

OURS, THEIRS = "holdfast-pipeline", "procrastinate"
#: Measure, value, direction, title and target.
_ROWS = (
    ("submit_together", "rate", at_least, f"submits of one job each, {CALLERS} callers at a time", 1.5),
    ("bulk_enqueue", "rate", at_least, f"submits in batches of 500, {BATCHES} at a time, in jobs", 3),
    ("end_to_end", "rate", at_least, "no-op jobs from the first submit until all have ended", 3),
    ("idle_latency", "p50_ms", at_most, "idle: one job at a time, from its submit until its end is known, p50", 3),
    ("submit_one_by_one", "rate", at_least, "for information: submits of one job each, one caller", 0),
)


def pipeline_ratios(results: PeersResults) -> list[Measure]:
    """The ratios of the rounds in which both were measured; none without both systems."""
    found = {(trial.system, trial.measure, trial.round): trial.values for trial in results.trials if not trial.error}
    rounds = range(1 + max((number for *_, number in found), default=-1))
    return [
        target(title, values, bound)
        for measure, name, target, title, bound in _ROWS
        if (
            values := [
                found[OURS, measure, number][name] / found[THEIRS, measure, number][name]
                for number in rounds
                if {(OURS, measure, number), (THEIRS, measure, number)} <= found.keys()
            ]
        )
    ]
