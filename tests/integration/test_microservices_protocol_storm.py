"""Many jobs and workers at once, while calls get lost, the coordinator dies and clients cancel, all from one seed."""

import asyncio
import contextlib
import random

import pytest

from holdfast.core.lifecycle import CANCELED, DONE, FAILED, QUEUED, TERMINAL
from holdfast.errors import HoldfastError, UnavailableError
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.proto import taskqueue_public_pb2 as public_pb
from tests.integration.microservices_world import Fault, World, world

JOBS = 25
ROUNDS = 40
#: In the world's time.
PATIENCE_S = 120


class Hand:
    """A worker that runs up to three jobs, obeys cancels, and remembers acknowledged outcomes."""

    def __init__(self, here: World, name: str, chance: random.Random) -> None:
        self.here = here
        self.name = name
        self.chance = chance
        self.held: dict[str, pb.FetchWorkResponse] = {}
        self.said: dict[str, public_pb.JobOutcome] = {}
        self.acknowledged: dict[str, tuple[int, public_pb.JobOutcome]] = {}

    async def turn(self) -> None:
        """Runs one second of the worker; a call that fails is repeated in the next turn."""
        for step in (self._beat, self._report, self._fetch):
            with contextlib.suppress(UnavailableError):
                await step()

    async def _beat(self) -> None:
        answer = await self.here.beat(*self.held.values(), worker=self.name)
        for lease in answer.revoked:
            self._forget(lease.job_id)
        for job_id in answer.cancel:
            self.said.setdefault(job_id, public_pb.JOB_OUTCOME_CANCELED)

    async def _fetch(self) -> None:
        if len(self.held) < 3:
            work = await self.here.fetch(self.name)
            if work.assigned:
                self._forget(work.job_id)
                self.held[work.job_id] = work

    async def _report(self) -> None:
        for job_id, work in list(self.held.items()):
            outcome = self.said.setdefault(job_id, self._outcome())
            refused = await self.here.report(work, outcome, worker=self.name, output_bytes=b"%d" % work.token)
            self._forget(job_id)
            if not refused:
                self.acknowledged[job_id] = work.token, outcome

    def _outcome(self) -> public_pb.JobOutcome:
        is_failure = self.chance.random() < 0.3
        return public_pb.JOB_OUTCOME_FAILED if is_failure else public_pb.JOB_OUTCOME_SUCCEEDED

    def _forget(self, job_id: str) -> None:
        self.held.pop(job_id, None)
        self.said.pop(job_id, None)


@pytest.mark.parametrize("seed", range(6))
async def test_storm_loses_nothing(seed: int) -> None:
    """Every accepted job ends once with an envelope of its status, and acknowledged outcomes stand."""
    chance = random.Random(seed)
    async with world() as here:
        hands = [Hand(here, f"hand-{number}", chance) for number in range(3)]
        ids: list[str] = []
        canceled: set[str] = set()
        for _ in range(ROUNDS):
            _disturb(here, chance)
            if len(ids) < JOBS:
                ids.append(await here.submit(max_attempts=3, max_losses=50))
            if chance.random() < 0.1:
                canceled.add(chance.choice(ids))
                with contextlib.suppress(HoldfastError):
                    await here.jobs.cancel(chance.choice(sorted(canceled)), "storm")
            await asyncio.gather(*(hand.turn() for hand in hands), here.pass_time(1_000))
            if chance.random() < 0.1:
                await here.kill()
        here.faults.reset()
        await _calm(here, hands, ids)
        for job_id in ids:
            await _check(here, hands, job_id, is_canceled=job_id in canceled)


def _disturb(here: World, chance: random.Random) -> None:
    """Makes some calls get lost, before or after they took effect."""
    level = chance.choice([0.0, 0.05, 0.3])

    def rule(_number: int, _method: str, _request: object) -> Fault | None:
        if chance.random() >= level:
            return None
        return chance.choice([Fault.LOST_BEFORE, Fault.LOST_AFTER])

    here.faults.rule = rule


async def _calm(here: World, hands: list[Hand], ids: list[str]) -> None:
    for _ in range(PATIENCE_S):
        await asyncio.gather(*(hand.turn() for hand in hands), here.pass_time(1_000))
        if all([await here.state(job_id) in TERMINAL for job_id in ids]):
            return
    raise AssertionError([str(await here.state(job_id)) for job_id in ids])


async def _check(here: World, hands: list[Hand], job_id: str, *, is_canceled: bool) -> None:
    await here.check_ended(job_id)
    state, record, result = await here.state(job_id), await here.record(job_id), await here.result(job_id)
    assert state in {DONE, FAILED} or is_canceled
    assert record.failures <= 3
    assert record.losses <= 50
    told = [hand.acknowledged[job_id] for hand in hands if job_id in hand.acknowledged]
    successes = [token for token, outcome in told if outcome == public_pb.JOB_OUTCOME_SUCCEEDED]
    if successes and state == DONE:
        # The output of an acknowledged run, or of an earlier one whose response was lost.
        assert int(result.output_bytes) <= max(successes)
    if state == CANCELED:
        assert is_canceled
    assert state != QUEUED
