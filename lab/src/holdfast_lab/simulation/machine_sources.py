"""Replaces the time and randomness of the machine in the product's code during a run.

Only modules that the simulated processes use are patched, and each is restored afterwards.
"""

import logging
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType, SimpleNamespace
from unittest import mock

from holdfast.client import reconnect_policy, submit_batcher
from holdfast.ledger import snapshots
from holdfast.worker import attempt_log, context, loop_watch, outcomes, runtime, slots
from holdfast.worker.executors import asyncio_tasks
from holdfast_lab.simulation.scheduler import SimulatedScheduler

_CLOCK_READERS: tuple[ModuleType, ...] = (
    *(attempt_log, context, loop_watch, outcomes, runtime, slots),
    *(asyncio_tasks, reconnect_policy),
)


@contextmanager
def machine_sources(clock: SimulatedScheduler, rng: random.Random) -> Iterator[None]:
    """Makes those modules use simulated time and the random source of the run, and log nothing."""
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
        # The heap is that of the whole simulation: collecting it for every part of a snapshot would take most of the
        # time.
        stack.enter_context(mock.patch.object(snapshots, "gc", SimpleNamespace(collect=int)))
        log.setLevel(logging.CRITICAL + 1)
        try:
            yield
        finally:
            log.setLevel(level)
