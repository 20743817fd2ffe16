"""Finds the smallest run that still fails: fewer faults first, then fewer events before the faults end."""

from holdfast_lab.simulation.runner import run_settings
from holdfast_lab.simulation.swarm import SwarmSettings
from holdfast_lab.simulation.world import RunOutcome


def minimise(failed: RunOutcome) -> RunOutcome:
    """Switches faults off one by one, then shortens the run, as long as it still fails."""
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
