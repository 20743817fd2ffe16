"""The jobs of a run: a handful of templates, and payloads that say how the job will end."""

import random

from holdfast.core.lifecycle import CANCELED, DONE, FAILED
from holdfast.core.model import EXPONENTIAL, FIXED, QUADRATIC, SIM_TYPE, BackoffRule, Template
from holdfast.testing.simulation.swarm import Settings

POISON = b"poison"
_TEMPLATES = 6
_ENDS = (DONE, DONE, DONE, DONE, DONE, FAILED, FAILED, CANCELED)


def draw_templates(settings: Settings) -> list[Template]:
    """The kinds of jobs that clients of this run submit."""
    rng = random.Random(f"templates/{settings.seed}")
    return [_draw_template(rng, settings) for _ in range(_TEMPLATES)]


def _draw_template(rng: random.Random, settings: Settings) -> Template:
    backoff = BackoffRule(rng.choice([FIXED, EXPONENTIAL, QUADRATIC]), rng.choice([0, 5, 200]), 2_000)
    return Template(
        type=f"type-{rng.randrange(settings.types)}",
        queue=f"queue-{rng.randrange(settings.queues)}",
        priority=rng.choice([0, 5, 5, 9]),
        max_attempts=rng.randint(1, 4),
        max_losses=rng.randint(0, 3),
        backoff=backoff,
        simulated=rng.random() < 0.2,  # noqa: PLR2004 - one in five
    )


def all_routes(settings: Settings) -> frozenset[str]:
    """What a worker must know to run everything."""
    return frozenset([SIM_TYPE, *(f"type-{number}" for number in range(settings.types))])


def draw_end(rng: random.Random) -> int:
    """How a run ends, as its worker will say."""
    return rng.choice(_ENDS)
