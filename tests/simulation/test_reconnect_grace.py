"""The leases of a worker whose connection drops are kept for the reconnect grace."""

import pytest

from holdfast.core.commands import ReportRow
from holdfast.core.lifecycle import DONE, QUEUED, RUNNING
from holdfast.ledger.sessions import Hello, Session, SessionPush
from holdfast.limits import RECONNECT_GRACE_MS
from holdfast_lab.simulation.swarm import SwarmSettings
from holdfast_lab.simulation.world import SimulatedWorld
from tests.simulation.test_sessions_without_room import Shop


@pytest.fixture
def shop() -> Shop:
    """A shop whose worker holds token 1 and has an empty instance name."""
    return Shop()


def attach(shop: Shop, *held: int, instance: str = "") -> list[SessionPush]:
    """Attaches the worker again; returns the messages that it receives."""
    pushes: list[SessionPush] = []
    hello = Hello("worker", frozenset({"type"}), held=frozenset(held), instance=instance)
    shop.session = Session(hello, pushes.append, lambda: None)
    shop.dispatcher.attach(shop.session)
    shop.machine.pass_ms(10)
    return pushes


def losses(shop: Shop) -> tuple[int, int]:
    job = shop.ledger.job("job")
    assert job is not None
    return job.losses, job.grants


def test_worker_that_is_back_within_the_grace_keeps_its_lease(shop: Shop) -> None:
    """Four connection resets of a healthy worker cause no loss and write no event."""
    position = shop.ledger.position
    for _ in range(4):
        shop.dispatcher.detach(shop.session)
        shop.machine.pass_ms(RECONNECT_GRACE_MS - 100)
        (welcome,) = attach(shop, 1)
        assert (welcome.is_welcome, welcome.revoked) == (True, [])
    assert (shop.job_state(), losses(shop), shop.ledger.position) == (RUNNING, (0, 1), position)
    shop.dispatcher.report(shop.session, 1, [ReportRow("job", 1, DONE)])
    shop.machine.pass_ms(10)
    assert shop.job_state() == DONE


def test_worker_that_does_not_return_loses_its_lease_after_the_grace(shop: Shop) -> None:
    """The job of a killed worker is queued again after the grace, long before its lease would expire."""
    shop.dispatcher.detach(shop.session)
    shop.machine.pass_ms(RECONNECT_GRACE_MS - 1)
    assert shop.job_state() == RUNNING
    shop.machine.pass_ms(500)
    assert (shop.job_state(), losses(shop)) == (QUEUED, (1, 1))
    (welcome,) = attach(shop, 1)
    assert welcome.revoked == [1]


def test_worker_that_says_goodbye_is_released_at_once(shop: Shop) -> None:
    """The leases of a worker that leaves are revoked without a grace."""
    shop.dispatcher.detach(shop.session, is_leaving=True)
    shop.machine.pass_ms(10)
    assert (shop.job_state(), losses(shop)) == (QUEUED, (1, 1))


def test_goodbye_of_a_draining_worker_is_no_loss(shop: Shop) -> None:
    """A lease that a draining worker has not started is requeued without a loss."""
    shop.dispatcher.drain(shop.session)
    shop.dispatcher.detach(shop.session, is_leaving=True)
    shop.machine.pass_ms(10)
    assert (shop.job_state(), losses(shop)) == (QUEUED, (0, 1))


def test_restarted_worker_has_lost_its_jobs(shop: Shop) -> None:
    """A job that kills its worker counts a loss each time, however soon the worker restarts."""
    shop.dispatcher.detach(shop.session)
    attach(shop, instance="the next run")
    assert (shop.job_state(), losses(shop)) == (QUEUED, (1, 1))


def test_worker_restarted_before_its_end_was_noticed_has_lost_its_jobs(shop: Shop) -> None:
    """A restarted worker has lost its jobs even if its old connection still seems to be open."""
    attach(shop, instance="the next run")
    assert (shop.job_state(), losses(shop)) == (QUEUED, (1, 1))


def test_lease_that_the_returning_worker_does_not_name_goes_back_unspent(shop: Shop) -> None:
    """A lease that did not reach the worker is requeued without a loss."""
    shop.dispatcher.detach(shop.session)
    attach(shop)
    assert (shop.job_state(), losses(shop)) == (QUEUED, (0, 1))


def test_grace_stands_still_while_the_coordinator_does(shop: Shop) -> None:
    """A suspension of the coordinator that is longer than the grace revokes no lease of a worker that returns."""
    shop.dispatcher.detach(shop.session)
    shop.machine.stop_for_ms(10 * RECONNECT_GRACE_MS)
    (welcome,) = attach(shop, 1)
    assert (welcome.revoked, shop.job_state()) == ([], RUNNING)


def test_absent_worker_is_given_up_once_there_is_room(shop: Shop) -> None:
    """A revocation that does not fit into the journal is retried."""
    shop.dispatcher.detach(shop.session)
    shop.machine.is_full = True
    shop.machine.pass_ms(2 * RECONNECT_GRACE_MS)
    assert shop.job_state() == RUNNING
    shop.machine.is_full = False
    shop.machine.pass_ms(500)
    assert (shop.job_state(), losses(shop)) == (QUEUED, (1, 1))


def test_heartbeats_write_nothing(shop: Shop) -> None:
    """An hour of heartbeats writes nothing to the journal and keeps the lease valid."""
    position = shop.machine.end_position
    for _ in range(360):
        shop.machine.pass_ms(10_000)
        shop.dispatcher.heartbeat(shop.session)
    shop.machine.pass_ms(10)
    assert (shop.machine.end_position, shop.job_state()) == (position, RUNNING)


GENTLE = ("stream-reset", "clean-restart", "kill", "wall-jump")


@pytest.mark.parametrize("faults", [GENTLE[:1], GENTLE[:2], GENTLE], ids="+".join)
@pytest.mark.parametrize("seed", range(4))
def test_healthy_worker_never_loses_a_job(faults: tuple[str, ...], seed: int) -> None:
    """Resets, restarts and clock jumps take no job from a worker that keeps reconnecting."""
    rates = {"stream-reset": 150, "clean-restart": 2_500, "kill": 2_500, "wall-jump": 1_000}
    settings = SwarmSettings(
        seed=seed, events=8_000, faults={name: rates[name] for name in faults}, run_ms=400, has_local=seed % 2 == 1
    )
    assert settings.is_gentle
    outcome = SimulatedWorld(settings).run()
    assert outcome.failure == ""
    assert all(outcome.fired.get(name) for name in faults[:1])
