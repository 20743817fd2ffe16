"""The jobs of a run: some templates, and payloads that determine how the job ends."""

import random

from holdfast.core.lifecycle import CANCELED, DONE, FAILED
from holdfast.core.model import EXPONENTIAL, FIXED, QUADRATIC, SIM_TYPE, BackoffRule, Template
from holdfast_lab.simulation.swarm import SwarmSettings

POISON = b"poison"
_TEMPLATES = 6
_ENDS = (DONE, DONE, DONE, DONE, DONE, FAILED, FAILED, CANCELED)


def draw_templates(settings: SwarmSettings) -> list[Template]:
    """Draws the kinds of jobs that clients of this run submit."""
    rng = random.Random(f"templates/{settings.seed}")
    return [_draw_template(rng, settings) for _ in range(_TEMPLATES)]


def _draw_template(rng: random.Random, settings: SwarmSettings) -> Template:
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


def all_routes(settings: SwarmSettings) -> frozenset[str]:
    """Returns the routes that a worker needs to run all jobs."""
    return frozenset([SIM_TYPE, *(f"type-{number}" for number in range(settings.types))])


def draw_end(rng: random.Random) -> int:
    """Draws how a run ends, as its worker will report it."""
    return rng.choice(_ENDS)
