"""The next lane: the index gives the same choice as a simple merge, and reads few entries for it."""

import heapq
import random
from collections.abc import Iterator

import pytest

from holdfast.core.lane import LaneKey
from holdfast.core.lane_order import LaneOrder, RouteFilter, virtual_arrival
from holdfast.core.lifecycle import FAILED, QUEUED
from holdfast.core.model import FIXED, BackoffRule, JobRecord, QueueMode, Template
from holdfast.core.quarantine import waits_alone_until_ms
from holdfast.limits import QUARANTINE_MS
from tests.unit.core.ledger_driver import LedgerDriver

QUEUES, ROUTES, PRIORITIES = ("q1", "q2", "q3", "q4"), ("a", "b", "c"), (0, 5, 9)


class Rule:
    """The simple form of the choice: merges all lanes, one job at a time."""

    def __init__(self, driver: LedgerDriver) -> None:
        self._driver = driver
        self._state = driver.ledger.state

    def ids(self, worker: str, routes: tuple[str, ...], queues: tuple[str, ...], count: int) -> list[str]:
        tokens = self._state.tokens_of.get(worker, ())
        if len(tokens) == 1 and self._runs_alone(next(iter(tokens))):
            return []
        chosen: list[str] = []
        held_back: set[tuple[str, str]] = set()
        for job in self._merged(routes, queues):
            track = job.template.queue, job.template.route
            if len(chosen) == count:
                break
            if waits_alone_until_ms(job) > self._driver.log_ms:
                if not chosen and not held_back and not tokens:
                    return [job.id]
                held_back.add(track)
            if track not in held_back:
                chosen.append(job.id)
        return chosen

    def _runs_alone(self, token: int) -> bool:
        job = self._state.leases[token].job
        is_last = 0 < job.losses >= job.template.max_losses
        return is_last and self._driver.log_ms - job.started_ms < QUARANTINE_MS

    def _merged(self, routes: tuple[str, ...], queues: tuple[str, ...]) -> Iterator[JobRecord]:
        self._state.ready.promote(self._driver.log_ms)
        heads: list[tuple[int, int, JobRecord, Iterator[JobRecord]]] = []

        def push(jobs: Iterator[JobRecord]) -> None:
            job = next(jobs, None)
            if job is not None:
                heapq.heappush(heads, (virtual_arrival(job, self._driver.config.aging_ms), job.number, job, jobs))

        for key, lane in self._state.ready.lanes.items():
            if self._is_wanted(key, routes, queues):
                push(lane.in_order())
        while heads:
            _, _, job, rest = heapq.heappop(heads)
            yield job
            push(rest)

    def _is_wanted(self, key: LaneKey, routes: tuple[str, ...], queues: tuple[str, ...]) -> bool:
        closure = self._state.modes.get(key[0])
        is_paused = closure is not None and closure.mode == QueueMode.PAUSED
        return key[1] in routes and (not queues or key[0] in queues) and not is_paused


@pytest.mark.parametrize("aging_ms", [0, 1_000])
@pytest.mark.parametrize("seed", range(4))
def test_choice_is_that_of_the_rule(seed: int, aging_ms: int) -> None:
    """Over random submits, grants, losses, retries, cancels, pauses and time, each grant equals that of the rule."""
    rng, driver = random.Random(seed), LedgerDriver(aging_ms=aging_ms)
    rule = Rule(driver)
    backoff = BackoffRule(FIXED, 300)
    for step in range(1_500):
        act = rng.randrange(10)
        worker = f"w{rng.randrange(4)}"
        held = list(driver.ledger.state.tokens_of.get(worker, ()))
        if act < 3:
            template = Template(
                rng.choice(ROUTES),
                rng.choice(QUEUES),
                rng.choice(PRIORITIES),
                max_attempts=3,
                backoff=backoff,
                max_losses=rng.choice((1, 2, 100)),
            )
            delay_ms = rng.choice((0, 0, 0, rng.randrange(500)))
            not_before_ms = driver.log_ms + delay_ms if delay_ms else 0
            driver.submit(f"job-{step}", f"job-{step}-b", template=template, not_before_ms=not_before_ms)
        elif act < 6:
            routes = tuple(rng.sample(ROUTES, rng.randrange(1, 4)))
            queues = tuple(rng.sample(QUEUES, rng.choice((0, 0, 1, 3))))
            count = rng.choice((1, 2, 5, 30))
            expected = rule.ids(worker, routes, queues, count)
            assert driver.leased_ids(count, worker=worker, routes=routes, queues=queues, lease_ms=10**6) == expected
        elif act == 6 and held:
            driver.revoke(worker, rng.choice(("disconnected", "released")))
        elif act == 7 and held:
            token = rng.choice(held)
            job_id = driver.ledger.state.leases[token].job.id
            driver.report(job_id, token, FAILED, worker=worker, is_retryable=True)
        elif act == 8:
            driver.pass_ms(rng.choice((1, 50, 400, QUARANTINE_MS // 4)))
        else:
            waiting = [job.id for job in driver.ledger.state.jobs.values() if job.state == QUEUED]
            if waiting and rng.random() < 0.5:
                driver.cancel(rng.choice(waiting))
            driver.set_mode(rng.choice(QUEUES), rng.choice((QueueMode.OPEN, QueueMode.OPEN, QueueMode.PAUSED)))
        if step % 100 == 0:
            driver.check()
    driver.check()


# -- number of entries read


def _order(driver: LedgerDriver) -> LaneOrder:
    return driver.ledger.state.ready.order(driver.config.aging_ms, driver.log_ms)


def _filled(queues: int) -> LedgerDriver:
    driver = LedgerDriver()
    for number in range(queues):
        driver.submit(f"job-{number}", template=Template("echo", queue=f"q{number}"))
    _order(driver)
    return driver


def _visits(driver: LedgerDriver, *queues: str) -> int:
    """Returns the number of entries that a decision and its event read."""
    before = _order(driver).visits
    assert driver.leased_ids(2, queues=queues)
    return _order(driver).visits - before


@pytest.mark.parametrize("named", [0, 3, -1])
def test_grant_looks_at_as_many_entries_beside_many_queues(named: int) -> None:
    """A grant reads as many entries with 10,000 non-empty queues as with 100, for all, few or all named queues."""
    seen = {}
    for count in (100, 10_000):
        driver = _filled(count)
        queues = [f"q{number}" for number in range(count if named < 0 else named)]
        seen[count] = _visits(driver, *queues)
    assert seen[10_000] <= 2 * seen[100]


def test_grant_looks_past_no_jobs_on_their_last_chance() -> None:
    """A busy worker gets its next job as quickly when a thousand queues hold jobs on their last chance."""
    seen = {}
    for count in (10, 1_000):
        driver = LedgerDriver()
        risky = [Template("echo", queue=f"q{number}", max_losses=1) for number in range(count)]
        for number, template in enumerate(risky):
            driver.submit(f"risky-{number}", template=template)
        driver.lease(count, worker="lost")
        driver.revoke("lost")
        driver.submit("one", "two", "three", template=Template("echo", queue="plain"))
        assert driver.leased_ids(1, worker="busy", queues=("plain",)) == ["one"]
        before = _order(driver).visits
        assert driver.leased_ids(2, worker="busy") == ["two", "three"]
        seen[count] = _order(driver).visits - before
    assert seen[1_000] <= 2 * seen[10]


def test_grant_looks_past_no_paused_queues() -> None:
    """Hundreds of paused queues with older jobs do not slow down the choice of the next job."""
    seen = {}
    for count in (10, 900):
        driver = _filled(count)
        for number in range(count):
            driver.set_mode(f"q{number}", QueueMode.PAUSED)
        driver.submit("a", "b", template=Template("echo", queue="open"))
        _order(driver)
        seen[count] = _visits(driver)
    assert seen[900] <= 2 * seen[10]


def test_only_wanted_tracks_are_chosen_from() -> None:
    """A choice without routes finds no job, and a choice without a filter finds all jobs."""
    driver = _filled(3)
    order = _order(driver)
    assert order.choose(RouteFilter(frozenset()), 3, driver.log_ms, is_free=True) == []
    assert [job.id for job in order.choose(None, 3, driver.log_ms, is_free=True)] == ["job-0", "job-1", "job-2"]
