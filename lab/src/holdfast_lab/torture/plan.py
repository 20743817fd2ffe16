"""The order of the faults, drawn from the seed alone, before anything runs.

The plan is a pure function of the seed and the kinds of faults. Every kind comes once, early and alone; then kinds are
drawn, kills more often than others, and sometimes two at once. Which process is hit, and at which instant of its work,
depends on the machine: the same seed fires the same faults in the same order, but not at the same byte.
"""

import random
from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

#: The weight of a kill, relative to each other fault.
_KILL_WEIGHT = 4
_TWO_AT_ONCE = 0.2
#: Jobs that are acknowledged before the next strike.
_JOBS_MIN, _JOBS_MAX = 5, 60
_CAMPAIGN_JOBS_MAX = 20
_LATER_MS_MAX = 1_500


class PlannedFault(msgspec.Struct, frozen=True):
    """One or two faults."""

    #: Starts at 1.
    number: int
    kinds: tuple[str, ...]
    #: The number of jobs that must be acknowledged before it.
    jobs: int
    #: Delay of the second fault after the first.
    later_ms: int = 0


def strikes(seed: int, kinds: Sequence[str], alone: Collection[str] = ()) -> Iterator[PlannedFault]:
    """Yields strikes without end, or none if there are no kinds; kinds in `alone` are never combined."""
    draw = random.Random(f"{seed} plan")
    kinds = sorted(kinds)
    if not kinds:
        return
    first = draw.sample(kinds, len(kinds))
    for number, kind in enumerate(first, 1):
        yield PlannedFault(number, (kind,), draw.randint(_JOBS_MIN, _JOBS_MAX))
    weights = [_KILL_WEIGHT if "kill" in kind else 1 for kind in kinds]
    number = len(kinds)
    while True:
        number += 1
        chosen = draw.choices(kinds, weights)
        others = [kind for kind in kinds if kind != chosen[0] and kind not in alone]
        if others and chosen[0] not in alone and draw.random() < _TWO_AT_ONCE:
            chosen.append(draw.choice(others))
        later_ms = draw.randrange(_LATER_MS_MAX) if len(chosen) > 1 else 0
        yield PlannedFault(number, tuple(chosen), draw.randint(_JOBS_MIN, _JOBS_MAX), later_ms)


def campaign(seed: int, counts: Mapping[str, int]) -> Iterator[PlannedFault]:
    """Every fault this often, one at a time, in an order drawn from the seed."""
    draw = random.Random(f"{seed} plan")
    order = [kind for kind, count in sorted(counts.items()) for _ in range(count)]
    draw.shuffle(order)
    for number, kind in enumerate(order, 1):
        yield PlannedFault(number, (kind,), draw.randint(_JOBS_MIN, _CAMPAIGN_JOBS_MAX))


def drawer(seed: int, strike: PlannedFault, kind: str) -> random.Random:
    """Returns the random stream for a fault of a strike."""
    return random.Random(f"{seed} {strike.number} {kind}")
