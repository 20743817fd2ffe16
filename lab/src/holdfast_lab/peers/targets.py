"""The targets beside other job queues: the ratio of Holdfast to one of them, round by round."""

from collections.abc import Callable

import msgspec

from holdfast_lab.measure.measures import Measure, at_least, at_most
from holdfast_lab.peers.results import PeersResults
from holdfast_lab.peers.stores import ONLY_SYNCED, UNSYNCED
from holdfast_lab.peers.system import BATCHES, CALLERS


class Target(msgspec.Struct, frozen=True):
    """One value of two systems, and the bound of its ratio. A peer that need not sync is measured without."""

    ours: str
    peer: str
    measure: str
    value: str
    bound: Callable[[str, list[float], float], Measure]
    ratio: float
    title: str


_DIRECTORY, _SERVER, _PIPELINE = "holdfast-directory", "holdfast-server", "holdfast-pipeline"
_ONE, _ALL, _IDLE = "submit_one_by_one", "end_to_end", "idle_latency"
TARGETS = (
    Target(_SERVER, "dramatiq", _ONE, "rate", at_least, 1, "submit one by one, server to Dramatiq"),
    Target(_SERVER, "beanstalkd", _ONE, "rate", at_least, 1, "submit one by one, server to beanstalkd"),
    Target(_SERVER, "huey", _ONE, "rate", at_least, 0.6, "submit one by one, server to Huey"),
    Target(_DIRECTORY, "huey-tuned", _IDLE, "p50_ms", at_most, 0.8, "idle p50, directory to Huey tuned"),
    Target(_DIRECTORY, "huey-tuned", _IDLE, "p99_ms", at_most, 1, "idle p99, directory to Huey tuned"),
    Target(_SERVER, "nats", _IDLE, "p50_ms", at_most, 1.4, "idle p50, server to NATS"),
    Target(_SERVER, "huey", _ALL, "rate", at_least, 10, "end to end, server to Huey"),
    Target(_DIRECTORY, "huey", _ALL, "rate", at_least, 13, "end to end, directory to Huey"),
    Target(_SERVER, "nats", _ALL, "rate", at_least, 2, "end to end, server to NATS"),
    Target(
        _PIPELINE,
        "procrastinate",
        "submit_together",
        "rate",
        at_least,
        1.5,
        f"submits of one job each, {CALLERS} callers at a time, pipeline to Procrastinate",
    ),
    Target(
        _PIPELINE,
        "procrastinate",
        "bulk_enqueue",
        "rate",
        at_least,
        3,
        f"submits in batches of 500, {BATCHES} at a time, in jobs, pipeline to Procrastinate",
    ),
    Target(_PIPELINE, "procrastinate", _ALL, "rate", at_least, 3, "end to end, pipeline to Procrastinate"),
    Target(_PIPELINE, "procrastinate", _IDLE, "p50_ms", at_most, 3, "idle p50, pipeline to Procrastinate"),
    Target(
        _PIPELINE,
        "procrastinate",
        _ONE,
        "rate",
        at_least,
        0,
        "for information: submit one by one, pipeline to Procrastinate",
    ),
)


def target_ratios(results: PeersResults) -> list[Measure]:
    """The ratios of the rounds in which both systems of a target were measured; no row without such a round."""
    found = {
        (trial.system, trial.measure, trial.round): trial.values
        for trial in results.trials
        if not trial.error and trial.mode in (UNSYNCED, ONLY_SYNCED)
    }
    rounds = range(1 + max((number for *_, number in found), default=-1))
    return [
        target.bound(target.title, values, target.ratio)
        for target in TARGETS
        if (
            values := [
                ours[target.value] / theirs[target.value]
                for number in rounds
                if (ours := found.get((target.ours, target.measure, number)))
                and (theirs := found.get((target.peer, target.measure, number)))
            ]
        )
    ]
