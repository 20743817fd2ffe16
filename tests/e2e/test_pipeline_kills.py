"""kill -9 of every role of the pipeline, its database crashed, silent and away, processes that stand still: under load.

KILLS is how often each role is killed; with ten and more, each outage of the database takes ten seconds.
"""

import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import grpc
import pytest

from holdfast.proto import holdfast_pb2 as own
from holdfast.proto import taskqueue_public_pb2 as public
from tests.e2e.campaign import kills_each, seed, victims
from tests.e2e.fleet import Fleet
from tests.e2e.pipeline_app import runs_in
from tests.e2e.pipeline_facts import Row
from tests.e2e.pipeline_load import Client, Story
from tests.e2e.pipeline_siege import ROLES, Siege
from tests.e2e.waiting import eventually
from tests.e2e.wire import Wire
from tests.postgres import require_postgres

SEED = seed(20_261_115)
KILLS = kills_each(1)
CLIENTS = 3
SECOND = 1_000
SCHEDULES = ("second", "also")
_CAMPAIGN = 10
OUTAGE_S = 10.0 if KILLS >= _CAMPAIGN else 2.0
#: Every few kills the database crashes, and somebody stands still.
_CRASHES = max(1, KILLS // 2)
_STOPPED = ("scheduler", "watcher", "exchange", "normal", "coordinator", "worker")


@pytest.fixture
def fleet(loaded_fleet: Fleet) -> Fleet:
    """How the program is loaded is no part of these tests."""
    return loaded_fleet


@pytest.fixture
def siege(fleet: Fleet, tmp_path: Path) -> Iterator[Siege]:
    """Everybody is ready."""
    require_postgres()
    siege = Siege(fleet, tmp_path, random.Random(SEED))
    try:
        siege.wait_for_all()
        yield siege
    finally:
        siege.end()


def set_schedules(wire: Wire) -> None:
    """One tick a second, of each."""
    for name in SCHEDULES:
        spec = own.ScheduleSpec(name=name, template=own.JobTemplate(type="tick", max_losses=20), every_ms=SECOND)
        eventually(partial(_is_taken, wire, "SetSchedule", spec), what=f"the schedule {name}")


def _is_taken(wire: Wire, method: str, request: own.ScheduleSpec | own.PauseScheduleRequest) -> bool:
    """Whether it was done; right after a start or a fault a gateway may not have found a scheduler yet."""
    try:
        wire.raw(f"/holdfast.v1.ScheduleService/{method}", request.SerializeToString())
    except grpc.RpcError as error:
        if error.code() != grpc.StatusCode.UNAVAILABLE:
            raise
        return False
    return True


def faults(siege: Siege, clients: list[Client], draw: random.Random) -> list[Callable[[], None]]:
    """All of them, in an order of chance."""

    def noticed(hints: list[int]) -> bool:
        return all(client.hints > before for client, before in zip(clients, hints, strict=True))

    def outage(fault: Callable[[float, Callable[[], bool]], None]) -> None:
        fault(OUTAGE_S, partial(noticed, [client.hints for client in clients]))

    stopped = _STOPPED if KILLS >= _CAMPAIGN else draw.sample(_STOPPED, 2)
    found: list[Callable[[], None]] = [
        *(partial(siege.kill, role) for role in victims(ROLES, KILLS, draw)),
        *(siege.crash_database for _ in range(_CRASHES)),
        *(siege.stop_leader for _ in range(_CRASHES)),
        *(partial(siege.stop, role) for role in stopped),
        *(partial(outage, fault) for fault in (siege.silence_database, siege.hide_database)),
    ]
    draw.shuffle(found)
    return found


def besiege(siege: Siege, clients: list[Client], draw: random.Random) -> None:
    """The next fault as soon as some more jobs were acknowledged and some more have ended."""
    for fault in faults(siege, clients, draw):
        wanted, ends = progress(siege, clients) + draw.randrange(1, 12), siege.facts.ended()
        eventually(lambda: progress(siege, clients), lambda count, wanted=wanted: count >= wanted, what="progress")  # type: ignore[misc]
        eventually(siege.facts.ended, lambda count, ends=ends: count > ends, what="jobs that end")  # type: ignore[misc]
        fault()


def progress(siege: Siege, clients: list[Client]) -> int:
    """How many jobs were acknowledged; whoever found something wrong ends it all."""
    assert [error for client in clients for error in client.errors] == []
    assert siege.strange() == []
    return sum(len(client.stories) for client in clients)


def settle(siege: Siege, clients: list[Client], wire: Wire) -> None:
    """Everybody is back, every client has its last answer, schedules have ticked on, and every job has its end."""
    siege.wait_for_all()
    ticks = siege.facts.ticked()
    eventually(siege.facts.ticked, lambda now: now > ticks + 2 * len(SCHEDULES), what="more ticks")
    for client in clients:
        client.stop()
    for name in SCHEDULES:
        pausing = own.PauseScheduleRequest(name=name, is_paused=True)
        eventually(partial(_is_taken, wire, "PauseSchedule", pausing), what=f"the end of the schedule {name}")
    eventually(siege.facts.unfinished, lambda count: count == 0, what="the drain")


def check_stories(siege: Siege, rows: list[Row], clients: list[Client]) -> None:
    """Every job that was acknowledged is there once, ended as its client heard; nothing else is there but ticks."""
    stories = [story for client in clients for story in client.stories]
    by_id = {row.job_id: row for row in rows}
    lost = [story.plan.name for story in stories if story.ids - by_id.keys()]
    assert lost == [], "acknowledged and lost"
    ends = {story.plan.name: by_id[story.job_id] for story in stories}
    problems = {
        story.job_id: (found, story.plan)
        for story in stories
        if (found := story.problems(ends[story.plan.name].state, ends[story.plan.name].reason))
    }
    assert problems == {}, siege.facts.past({*problems})
    names = Counter(row.name for row in rows if row.name)
    assert [name for name, count in names.items() if count > 1] == [], "made twice"
    asked_for = ends.keys() | {name for client in clients for name in client.unknown}
    assert names.keys() <= asked_for, "nothing exists that nobody asked for"


def check_ticks(siege: Siege, rows: list[Row]) -> dict[int, list[int]]:
    """Each second of each schedule has one tick, and each tick one job of its own."""
    ticks = siege.facts.ticks()
    assert len(ticks) == len(SCHEDULES)
    for found in ticks.values():
        assert found == list(range(found[0], found[-1] + 1, SECOND))
    assert siege.facts.jobs_of_ticks() == Counter(row.job_id for row in rows if not row.name)
    assert {row.type for row in rows if not row.name} == {"tick"}
    return ticks


def check_runs(siege: Siege, rows: list[Row]) -> None:
    """What ran is what the database gave the right to run: each token once, and nothing that was canceled before."""
    runs = Counter(runs_in(siege.runs))
    assert [run for run, count in runs.items() if count > 1] == [], "ran twice under one token"
    assert runs.keys() <= siege.facts.attempts(), "ran without the right to"
    never = {row.job_id for row in rows if row.attempts == 0}
    assert never & {job_id for job_id, _ in runs} == set()
    assert {row.state for row in rows if row.attempts == 0} <= {public.CANCELED}


@pytest.mark.slow
@pytest.mark.timeout(300 + 90 * KILLS)
def test_faults_of_every_kind_lose_and_double_nothing(fleet: Fleet, siege: Siege) -> None:
    """Each role is killed under load, and worse: every job ends once, every second ticks once, nobody hangs."""
    draw, wire = random.Random(SEED), fleet.wire(siege.target)
    clients = [Client(fleet.wire(siege.target), f"c{number}", SEED) for number in range(CLIENTS)]
    set_schedules(wire)
    for client in clients:
        client.start()
    try:
        besiege(siege, clients, draw)
        settle(siege, clients, wire)
    finally:
        for client in clients:
            client.stop()
        tell(siege, clients)
    assert progress(siege, clients)
    rows = siege.facts.jobs()
    assert siege.facts.broken() == {}
    check_stories(siege, rows, clients)
    check_ticks(siege, rows)
    check_runs(siege, rows)
    assert siege.odd_lines() == []
    assert {role: siege.faults[role] for role in ROLES} == dict.fromkeys(ROLES, KILLS)


def tell(siege: Siege, clients: list[Client]) -> None:
    """The numbers of a campaign, for whoever looks at them."""
    stories: list[Story] = [story for client in clients for story in client.stories]
    ends = Counter(public.JobStatus.Name(row.state) for row in siege.facts.jobs())
    answered, lost = Counter[str](), Counter[str]()
    for client in clients:
        answered, lost = answered + client.answered, lost + client.lost
    lines = (
        f"SEED={SEED} faults {dict(siege.faults)}",
        f"jobs acknowledged {len(stories)}, told to be canceled {sum(story.is_canceled for story in stories)}",
        f"rows {dict(ends)}, ticks {siege.facts.ticked()}, epoch {siege.facts.epoch()}",
        f"answered {dict(answered)}, lost {dict(lost)}, hints {sum(client.hints for client in clients)}",
    )
    sys.stdout.write("\n".join((*lines, "")))
