"""Repeated kill -9 of the server while schedules tick every second; KILLS is the number of kills.

The campaigns of the torture keep one schedule, which catches up on all missed ticks. This test has a schedule for each
rule of catching up and of overlap, and compares the counts of the journal exactly, which the torture's records do not
contain. Four schedules in the torture would need those rules in its judge and in the facts of every topology.
"""

import random
from pathlib import Path

import pytest

from holdfast.core.events import ScheduleSet, Started, Ticked
from holdfast.proto import holdfast_pb2 as own
from tests.e2e.campaign import kills_each, seed
from tests.e2e.fleet import Fleet, stable_port
from tests.e2e.grpc_client import Wire
from tests.e2e.history import checked, events_in, of_kind
from tests.e2e.wait_until import eventually, pause

SEED = seed(20_261_115)
KILLS = kills_each(3)
SERVICE = "/holdfast.v1.ScheduleService"
#: Name, catch-up rule, overlap rule. No worker runs the jobs, so with `skip` all ticks after the first are skipped.
PLANS = (("none", "none", "allow"), ("latest", "latest", "allow"), ("all", "all", "allow"), ("alone", "all", "skip"))


@pytest.fixture
def fleet(loaded_fleet: Fleet) -> Fleet:
    """A fleet whose processes are forked from the preloaded program."""
    return loaded_fleet


def set_schedule(wire: Wire, name: str, catch_up: str, overlap: str) -> None:
    """Sets a schedule with one tick per second."""
    spec = own.ScheduleSpec(
        name=name, template=own.JobTemplate(type="nobody"), every_ms=1_000, catch_up=catch_up, overlap=overlap
    )
    wire.raw(f"{SERVICE}/SetSchedule", spec.SerializeToString())


def ticked(wire: Wire) -> int:
    """The number of ticks of all schedules that were fired, skipped or missed."""
    answer = own.ListSchedulesResponse.FromString(wire.raw(f"{SERVICE}/ListSchedules", b""))
    return sum(one.fired + one.skipped + one.missed for one in answer.schedules)


@pytest.mark.slow
@pytest.mark.timeout(240 + 10 * KILLS)
def test_kills_lose_no_tick_and_double_none(fleet: Fleet, tmp_path: Path) -> None:
    """In the journal, each second of each schedule was fired once, skipped once, or counted as missed."""
    draw, port = random.Random(SEED), stable_port()
    server, wire = fleet.server("--log-level", "warning", port=port)
    for plan in PLANS:
        set_schedule(wire, *plan)
    for _ in range(KILLS):
        wanted = ticked(wire) + draw.randrange(1, 5)
        eventually(lambda wire=wire: ticked(wire), lambda count, wanted=wanted: count >= wanted, what="ticks")  # type: ignore[misc]
        pause(draw.uniform(0, 1))  # at any instant of a second
        server.kill()
        server, wire = fleet.server("--log-level", "warning", port=port)
    wanted = ticked(wire) + 2 * len(PLANS)
    eventually(lambda: ticked(wire), lambda count: count >= wanted, what="ticks after the last kill")
    assert server.stop() == 0
    model, found = checked(tmp_path / "data"), events_in(tmp_path / "data")
    assert len(list(of_kind(found, Started))) == KILLS + 1
    first_ms = {event.spec.name: event.next_ms for event in of_kind(found, ScheduleSet)}
    for name, _, overlap in PLANS:
        schedule = model.schedules.kept[name]
        ticks = [event for event in of_kind(found, Ticked) if event.name == name]
        made = [event.tick_ms for event in ticks if event.job is not None]
        assert len(made) == len(set(made)) == schedule.fired, "a tick made two jobs"
        assert all(event.at_ms >= event.tick_ms for event in ticks), "a tick came before its time"
        over = len(made) + schedule.skipped + schedule.missed
        assert over == (schedule.next_ms - first_ms[name]) // 1_000, "a tick is nowhere"
        assert (schedule.fired == 1) == (overlap == "skip")
    jobs = [event.job.id for event in of_kind(found, Ticked) if event.job is not None]
    assert sorted(model.jobs) == sorted(jobs), "a job that no tick made, or a tick whose job is gone"
