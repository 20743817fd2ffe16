"""Time and randomness that the product's code takes from the machine, replaced while a run lasts.

Only modules that the simulated processes use are named here, and each gets its names back afterwards.
"""

import logging
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType, SimpleNamespace
from unittest import mock

from holdfast.client import reconnect_policy, submit_batcher
from holdfast.ledger import snapshots
from holdfast.testing.simulation.clockwork import Clockwork
from holdfast.worker import attempt_log, context, loop_watch, outcomes, runtime, slots
from holdfast.worker.executors import asyncio_tasks

_CLOCK_READERS: tuple[ModuleType, ...] = (
    *(attempt_log, context, loop_watch, outcomes, runtime, slots),
    *(asyncio_tasks, reconnect_policy),
)


@contextmanager
def machine_sources(clock: Clockwork, rng: random.Random) -> Iterator[None]:
    """Within this, those modules see simulated time and the randomness of the run, and log nothing."""
    time = SimpleNamespace(monotonic=lambda: clock.now_us / 1_000_000, time_ns=lambda: clock.wall_ms() * 1_000_000)
    log = logging.getLogger("holdfast")
    level = log.level
    with ExitStack() as stack:
        for module in _CLOCK_READERS:
            stack.enter_context(mock.patch.object(module, "time", time))
        for module in (runtime, reconnect_policy):
            stack.enter_context(mock.patch.object(module, "random", rng))
        secrets = SimpleNamespace(token_hex=lambda size: rng.randbytes(size).hex())
        stack.enter_context(mock.patch.object(runtime, "secrets", secrets))
        stack.enter_context(mock.patch.object(submit_batcher, "os", SimpleNamespace(urandom=rng.randbytes)))
        # The heap is that of the whole simulation: to collect it for every part of a snapshot would take most of a run.
        stack.enter_context(mock.patch.object(snapshots, "gc", SimpleNamespace(collect=int)))
        log.setLevel(logging.CRITICAL + 1)
        try:
            yield
        finally:
            log.setLevel(level)
