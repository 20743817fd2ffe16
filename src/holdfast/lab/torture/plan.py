"""When what is broken: drawn from the seed alone, before anything runs.

The plan is a pure function of the seed and the kinds of faults. Every kind comes once, early and alone; after that they
are drawn, kills more often than others, and now and then two at once. What is hit, and at which instant of the
product's work, is up to the machine: the same seed breaks the same things in the same order, not at the same byte.
"""

import random
from collections.abc import Collection, Iterator, Sequence

import msgspec

#: How much likelier a kill is than each other fault, as long as there are both.
_KILL_WEIGHT = 4
_TWO_AT_ONCE = 0.2
#: Jobs that are acknowledged before the next strike.
_JOBS_MIN, _JOBS_MAX = 5, 60
_LATER_MS_MAX = 1_500


class Strike(msgspec.Struct, frozen=True):
    """One or two faults."""

    #: From 1.
    number: int
    kinds: tuple[str, ...]
    #: How many jobs have to be acknowledged before it.
    jobs: int
    #: How much later than the first the second one begins.
    later_ms: int = 0


def strikes(seed: int, kinds: Sequence[str], alone: Collection[str] = ()) -> Iterator[Strike]:
    """Without an end; nothing if there is nothing to break with. Those of `alone` come with no other."""
    draw = random.Random(f"{seed} plan")
    kinds = sorted(kinds)
    if not kinds:
        return
    first = draw.sample(kinds, len(kinds))
    for number, kind in enumerate(first, 1):
        yield Strike(number, (kind,), draw.randint(_JOBS_MIN, _JOBS_MAX))
    weights = [_KILL_WEIGHT if "kill" in kind else 1 for kind in kinds]
    number = len(kinds)
    while True:
        number += 1
        chosen = draw.choices(kinds, weights)
        others = [kind for kind in kinds if kind != chosen[0] and kind not in alone]
        if others and chosen[0] not in alone and draw.random() < _TWO_AT_ONCE:
            chosen.append(draw.choice(others))
        later_ms = draw.randrange(_LATER_MS_MAX) if len(chosen) > 1 else 0
        yield Strike(number, tuple(chosen), draw.randint(_JOBS_MIN, _JOBS_MAX), later_ms)


def drawer(seed: int, strike: Strike, kind: str) -> random.Random:
    """What a fault of a strike draws from."""
    return random.Random(f"{seed} {strike.number} {kind}")
