"""`python -m holdfast_lab.simulation.cluster_search`: search for a broken guarantee of the cluster, or replay one."""

import argparse
import multiprocessing
import sys
import time
from collections.abc import Iterable, Iterator

from holdfast_lab.simulation.cluster_settings import CALL_PERCENTS, CLUSTER_INTERVALS_MS
from holdfast_lab.simulation.cluster_world import ClusterOutcome, run_cluster_seed

EVENTS_DEFAULT = 8_000
#: Events that a sweep must have met; without them it proves less.
MET = (
    *CLUSTER_INTERVALS_MS,
    *(name.replace("_", " ") for name in CALL_PERCENTS),
    *("lost commits", "canceled wait", "asked one of two leaders", "stepped down", "handover"),
    *("lost lease-ended", "lost taken-over", "lost handed-over", "follower rebuilt"),
)


def missing(fired: Iterable[str]) -> list[str]:
    """Returns what never happened."""
    met = set(fired)
    return [name for name in MET if name not in met]


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns 1 if a guarantee was broken, else 0."""
    options = _parse(arguments)
    seeds = [options.seed] if options.seed is not None else options.seeds
    fired: dict[str, int] = {}
    count = 0
    for outcome in _outcomes(seeds, options.events, options.jobs, options.minutes):
        count += 1
        for name, number in outcome.fired.items():
            fired[name] = fired.get(name, 0) + number
        if outcome.failure:
            _explain(outcome)
            return 1
        if options.seed is not None:
            _show(outcome)
    print(f"{count} seeds; events:", ", ".join(f"{name} {number}" for name, number in sorted(fired.items())))
    if quiet := missing(fired):
        print("never happened (a longer sweep covers everything):", ", ".join(quiet))
    print("no guarantee was broken")
    return 0


def _outcomes(seeds: Iterable[int], events: int, jobs: int, minutes: float) -> Iterator[ClusterOutcome]:
    """Yields outcomes until the seeds or the minutes are over."""
    deadline = time.monotonic() + minutes * 60
    work = [(seed, events) for seed in seeds]
    if jobs == 1 or len(work) == 1:
        yield from (run_cluster_seed(*one) for one in work)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for outcome in pool.imap_unordered(_run_one, work):
            yield outcome
            if time.monotonic() > deadline:
                return


def _run_one(work: tuple[int, int]) -> ClusterOutcome:
    return run_cluster_seed(*work)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m holdfast_lab.simulation.cluster_search", description=__doc__)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--seed", type=int, help="replay one seed exactly, and print all details")
    which.add_argument(
        "--seeds", type=_range, default=range(100), metavar="A:B", help="run the seeds from A up to B, without B"
    )
    parser.add_argument("--minutes", type=float, default=60.0, help="stop after this many minutes")
    parser.add_argument("--jobs", type=int, default=2, help="number of processes")
    parser.add_argument("--events", type=int, default=EVENTS_DEFAULT, help="number of events before the faults end")
    return parser.parse_args(arguments)


def _range(text: str) -> range:
    first, _, stop = text.partition(":")
    return range(int(first), int(stop))


def _explain(outcome: ClusterOutcome) -> None:
    print(f"SEED={outcome.settings.seed}")
    print(f"broken: {outcome.failure}")
    print(f"after {outcome.steps} events, {outcome.simulated_ms} simulated ms; the last of them:")
    for line in outcome.tail:
        print(f"  {line}")
    print(f"  {outcome.settings.describe()}", flush=True)


def _show(outcome: ClusterOutcome) -> None:
    print(f"SEED={outcome.settings.seed}")
    print(f"  {outcome.settings.describe()}")
    print("  done:", ", ".join(f"{name} {number}" for name, number in outcome.done.items()))
    print(f"  {outcome.steps} events, {outcome.simulated_ms} simulated ms")
    print(f"digest: {outcome.digest}")


if __name__ == "__main__":
    sys.exit(main())
