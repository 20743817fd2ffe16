"""`python -m holdfast_lab.simulation`: search for a broken guarantee, or replay one."""

import argparse
import math
import sys
import time
from pathlib import Path

import msgspec

from holdfast_lab.evidence import BROKEN, KEPT, UNKNOWN, Campaign, Evidence, RuleResult, keep
from holdfast_lab.simulation import regressions
from holdfast_lab.simulation.runner import EVENTS_DEFAULT, Sweep, SweepTally, minimise, run_seed
from holdfast_lab.simulation.swarm import draw
from holdfast_lab.simulation.world import RunOutcome

REGRESSIONS = Path("tests/simulation/regressions.txt")
_PROGRESS_S = 5.0
_INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns 1 if a guarantee was broken, else 0."""
    options = _parse(arguments)
    campaign = Campaign("simulation")
    if options.seed is not None:
        outcome = _replay(options.seed, options.events)
        tally = SweepTally()
        tally.add(outcome)
        _keep(options, campaign, tally, [options.seed])
        return 1 if outcome.failure else 0
    started = time.monotonic()
    search = Sweep(options.events, options.jobs)
    if options.seeds:
        outcomes = search.over(options.seeds)
    else:
        # New seeds each time, from the clock of this machine; the run itself never reads it.
        outcomes = search.until(started + options.minutes * 60, time.time_ns() // 1_000_000 % 1_000_000_000)
    tally, shown, status, seeds = SweepTally(), started, 0, list[int]()
    try:
        for outcome in outcomes:
            tally.add(outcome)
            seeds.append(outcome.settings.seed)
            if outcome.failure:
                _explain(outcome)
                _record(outcome, options.events)
                _keep(options, campaign, tally, seeds)
                return 1
            if time.monotonic() - shown > _PROGRESS_S:
                shown = time.monotonic()
                print(_progress(tally, shown - started, options.jobs), flush=True)
    except KeyboardInterrupt:
        status = _INTERRUPTED
    print(_progress(tally, time.monotonic() - started, options.jobs))
    print("  faults:", _counts(tally.fired))
    print("  done:", _counts(tally.done))
    if missing := tally.missing():
        print("  never happened (a longer sweep covers everything):", ", ".join(missing))
    print("no guarantee was broken" + (", until it was interrupted" if status else ""))
    _keep(options, campaign, tally, seeds)
    return status


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m holdfast_lab.simulation", description=__doc__)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--minutes", type=_minutes, default=1.0, help="search new seeds for this many minutes")
    which.add_argument("--seed", type=int, help="replay one seed exactly, and print all details")
    which.add_argument("--seeds", type=_range, metavar="A:B", help="run the seeds from A up to B, without B")
    parser.add_argument("--jobs", type=_count, default=2, help="number of processes")
    parser.add_argument(
        "--evidence",
        type=Path,
        metavar="DIRECTORY",
        help="write a file with seeds, commit and verdict to this directory",
    )
    parser.add_argument("--events", type=_count, default=EVENTS_DEFAULT, help="number of events before the faults end")
    return parser.parse_args(arguments)


def _minutes(text: str) -> float:
    minutes = float(text)
    if not 0 < minutes < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number of minutes above 0, got {text}")
    return minutes


def _range(text: str) -> range:
    first, _, stop = text.partition(":")
    seeds = range(int(first), int(stop))
    if not seeds:
        raise argparse.ArgumentTypeError(f"expected A:B with A before B, got {text}")
    return seeds


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, got {text}")
    return count


def _replay(seed: int, events: int) -> RunOutcome:
    started = time.process_time()
    outcome = run_seed(seed, events)
    took_s = time.process_time() - started
    if outcome.failure:
        _explain(outcome)
    else:
        print(f"SEED={seed}")
        print(f"  {outcome.settings.describe()}")
    print(f"outcome: {outcome.verdict}{', missing: ' + ', '.join(outcome.missing) if outcome.missing else ''}")
    print("  faults:", _counts(outcome.fired))
    print("  done:", _counts(outcome.done))
    rate = f"{outcome.steps / took_s:,.0f} events/s"
    print(f"  {outcome.steps} events, {outcome.simulated_ms} simulated ms, {rate}")
    print(f"digest: {outcome.digest}")
    return outcome


def _explain(outcome: RunOutcome) -> None:
    print(f"SEED={outcome.settings.seed}")
    print(f"broken: {outcome.failure}")
    print(f"after {outcome.steps} events, {outcome.simulated_ms} simulated ms; the last of them:")
    for line in outcome.tail:
        print(f"  {line}")
    print(f"  {outcome.settings.describe()}", flush=True)


def _record(outcome: RunOutcome, events: int) -> None:
    print("minimising ...", flush=True)
    smallest = minimise(outcome)
    line = regressions.line_of(smallest, draw(outcome.settings.seed, events))
    print(f"smallest: {line}")
    if REGRESSIONS.parent.is_dir() and regressions.append(REGRESSIONS, line):
        print(f"added to {REGRESSIONS}")


def _keep(options: argparse.Namespace, campaign: Campaign, tally: SweepTally, seeds: list[int]) -> None:
    """Writes the evidence of a sweep if a folder was given and a seed was run."""
    if options.evidence is not None and seeds:
        print(f"evidence: {keep(options.evidence, _evidence(campaign, tally, seeds, options.events))}")


def _evidence(campaign: Campaign, tally: SweepTally, seeds: list[int], events: int) -> Evidence:
    """Returns the evidence of a sweep; its verdict is unknown if an operation or a fault never happened."""
    first, last, missing = min(seeds), max(seeds), tally.missing()
    findings = [f"seed {one.settings.seed}: {one.failure}" for one in tally.failed]
    covered = RuleResult("every kind met", UNKNOWN if missing else KEPT, len(tally.fired) + len(tally.done))
    return campaign.end(
        seeds=(first, last),
        command=f"python -m holdfast_lab.simulation --seeds {first}:{last + 1} --events {events}",
        verdict=BROKEN if findings else covered.verdict,
        rules=[
            RuleResult("no promise broken", BROKEN if findings else KEPT, tally.seeds, len(findings)),
            msgspec.structs.replace(covered, why=f"never happened: {', '.join(missing)}" if missing else ""),
        ],
        numbers={"seeds": tally.seeds, "events": tally.steps, "faults": sum(tally.fired.values())},
        findings=findings,
    )


def _progress(tally: SweepTally, seconds: float, jobs: int) -> str:
    rate, missing = tally.steps / max(seconds, 0.001) / jobs, len(tally.missing())
    return (
        f"{tally.seeds} seeds, {tally.steps:,} events, {rate:,.0f} events/s per core,"
        f" {sum(tally.fired.values()):,} faults"
        + (f"; {missing} kinds of operations and faults not met yet" if missing else "")
    )


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


if __name__ == "__main__":
    sys.exit(main())
