"""Probes: frequent requests to every server of a shard that believes to lead it, without waiting for earlier replies.

Clients lose time with lost requests. The probes make sure that an old leader that wakes up has something to answer.
"""

import random
from collections.abc import Callable

from holdfast.core import commands
from holdfast.core.commands import Submit
from holdfast.core.model import NewJob, Template
from holdfast.ledger.coordinator import CommandLane
from holdfast_lab.simulation.cluster_server import ClusterServer
from holdfast_lab.simulation.response_checks import ResponseChecks
from holdfast_lab.simulation.scheduler import SimulatedScheduler
from holdfast_lab.simulation.shard_front import ShardFront

_EVERY_US = (500, 8_000)
_SUBMITS, _BEATS = 0.15, 0.3
_BACKLOG_MAX = 60


class ShardProbe:
    """Sends requests to the servers of one shard until it is stopped. `mint` makes ids of jobs."""

    def __init__(
        self,
        clock: SimulatedScheduler,
        front: ShardFront,
        checks: ResponseChecks,
        rng: random.Random,
        mint: Callable[[], str],
    ) -> None:
        self._clock = clock
        self._front = front
        self._checks = checks
        self._rng = rng
        self._mint = mint
        self.is_stopped = False
        self._later()

    def _later(self) -> None:
        self._clock.after(self._rng.randint(*_EVERY_US), "probe", self._probe)

    def _probe(self) -> None:
        if self.is_stopped:
            return
        if self._front.servers:
            server = self._rng.choice(self._front.servers)
            if len(self._front.servers) > 1:
                self._front.fired("asked one of two leaders")
            draw = self._rng.random()
            server.process.here("probe", lambda: self._send(server, draw))
        self._later()

    def _send(self, server: ClusterServer, draw: float) -> None:
        if draw < _SUBMITS and self._checks.backlog < _BACKLOG_MAX:
            submit = Submit([Template(type="type-0", queue="queue-0")], [NewJob(self._mint(), 0, b"probe")])
            server.coordinator.call(
                CommandLane.SUBMIT, submit, lambda reply: self._checks.submitted_reply(submit, reply)
            )
        elif draw < _BEATS:
            server.coordinator.hear(commands.Extend("probe", 1_000, frozenset(), 0), _ignore)
        else:
            server.coordinator.read(CommandLane.SUBMIT, lambda ledger, _: ledger.position, _ignore)


def _ignore(_: object) -> None:
    """Does nothing: the coordinator's replies are checked when they leave."""
