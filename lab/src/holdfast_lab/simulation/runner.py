"""Runs many seeds in a few processes, until a time or a range is over, and finds the smallest run that fails."""

import multiprocessing
import multiprocessing.pool
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from holdfast_lab.simulation.swarm import ALL_FAULTS, SwarmSettings, draw
from holdfast_lab.simulation.world import OPERATIONS, RunOutcome, SimulatedWorld

EVENTS_DEFAULT = 20_000
_BATCH = 4


def run_settings(settings: SwarmSettings) -> RunOutcome:
    """Runs one simulation."""
    return SimulatedWorld(settings).run()


def run_seed(seed: int, events: int = EVENTS_DEFAULT) -> RunOutcome:
    """Runs the simulation of a seed."""
    return run_settings(draw(seed, events))


@dataclass(slots=True)
class SweepTally:
    """The totals of a sweep so far."""

    seeds: int = 0
    steps: int = 0
    fired: dict[str, int] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)
    failed: list[RunOutcome] = field(default_factory=list)

    def add(self, outcome: RunOutcome) -> None:
        """Adds one run."""
        self.seeds += 1
        self.steps += outcome.steps
        for total, part in ((self.fired, outcome.fired), (self.done, outcome.done)):
            for name, count in part.items():
                total[name] = total.get(name, 0) + count
        if outcome.failure:
            self.failed.append(outcome)

    def missing(self) -> list[str]:
        """Returns operations that never succeeded and faults that never struck: without them a sweep proves less."""
        quiet = [fault for fault in ALL_FAULTS if not self.fired.get(fault)]
        return quiet + [name for name in OPERATIONS if not self.done.get(name)]


class Sweep:
    """Processes that run seeds; a pool takes its input at once, so a search by time gets batches."""

    def __init__(self, events: int, jobs: int) -> None:
        self._events = events
        self._jobs = jobs

    def over(self, seeds: Iterable[int]) -> Iterator[RunOutcome]:
        """Yields the outcomes of these seeds as they complete."""
        if self._jobs == 1:
            yield from (run_seed(seed, self._events) for seed in seeds)
            return
        with self._pool() as pool:
            yield from pool.imap_unordered(_run_one, [(seed, self._events) for seed in seeds])

    def until(self, deadline: float, first_seed: int) -> Iterator[RunOutcome]:
        """Yields the outcomes of new seeds until the deadline, by this machine's monotonic clock."""
        with self._pool() as pool:
            seed = first_seed
            while time.monotonic() < deadline:
                batch = [(number, self._events) for number in range(seed, seed + _BATCH * self._jobs)]
                seed += len(batch)
                yield from pool.imap_unordered(_run_one, batch)

    def _pool(self) -> "multiprocessing.pool.Pool":
        """Returns a pool that ignores Ctrl-C: the main process ends it."""
        return multiprocessing.get_context("spawn").Pool(self._jobs, signal.signal, (signal.SIGINT, signal.SIG_IGN))


def _run_one(work: tuple[int, int]) -> RunOutcome:
    return run_seed(*work)


def minimise(failed: RunOutcome) -> RunOutcome:
    """Finds the smallest run that still fails: switches faults off one by one, then shortens the run."""
    best = failed
    for fault in sorted(failed.settings.faults):
        best = _still_fails(best.settings.without(fault)) or best
    return _shortest(best)


def _still_fails(settings: SwarmSettings) -> RunOutcome | None:
    outcome = run_settings(settings)
    return outcome if outcome.failure else None


def _shortest(best: RunOutcome) -> RunOutcome:
    """Bisects between a length that fails and one that does not."""
    low, high = 0, min(best.steps, best.settings.events)
    while high - low > max(1, high // 50):
        middle = (low + high) // 2
        shorter = _still_fails(best.settings.shortened(middle))
        if shorter is None:
            low = middle
        else:
            best, high = shorter, min(middle, shorter.steps)
    return best
