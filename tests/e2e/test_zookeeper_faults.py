"""Servers of the ensemble, workers and sessions break while clients of the frozen contract submit, look and cancel."""

import random
import sys
from collections import Counter

import pytest

from holdfast.proto import taskqueue_public_pb2 as public
from holdfast.topologies.zookeeper.private_ensemble import PrivateZooKeeper
from tests.e2e.campaign import kills_each, seed, victims
from tests.e2e.contract_load import Client, Story
from tests.e2e.fleet import Fleet
from tests.e2e.test_microservices_kills import ask_once_more, unfinished
from tests.e2e.waiting import eventually, pause
from tests.e2e.zookeeper_siege import FAULTS, Siege
from tests.zookeeper import fresh_root

SEED = seed(20_261_117)
KILLS = kills_each(1)
CLIENTS = 3


@pytest.fixture
def fleet(loaded_fleet: Fleet) -> Fleet:
    """How the program is loaded is no part of these tests."""
    return loaded_fleet


def besiege(siege: Siege, clients: list[Client], draw: random.Random) -> None:
    """Breaks whatever is next once some more jobs were acknowledged, and mends it once more of them were."""

    def go_on() -> None:
        wanted = _progress(clients) + draw.randrange(2, 12)
        eventually(lambda: _progress(clients), lambda count: count >= wanted, what="progress")
        pause(draw.uniform(0, 0.03))

    for name in victims(FAULTS, KILLS, draw):
        go_on()
        FAULTS[name](siege, go_on)
        siege.faults[name] += 1


def _progress(clients: list[Client]) -> int:
    for client in clients:
        assert client.errors == []
    return sum(len(client.stories) for client in clients)


@pytest.mark.slow
@pytest.mark.timeout(240 + 90 * KILLS)
def test_nothing_that_was_acknowledged_is_lost_by_any_fault(fleet: Fleet, ensemble: PrivateZooKeeper) -> None:
    """Whatever breaks, every acknowledged job ends once, as was told, and nothing else exists."""
    draw = random.Random(SEED)
    siege = Siege(fleet, ensemble, fresh_root("faults"), draw)
    clients = [Client(fleet.wire(siege.target), f"c{number}", SEED) for number in range(CLIENTS)]
    wire = fleet.wire(siege.target)
    for client in clients:
        client.start()
    try:
        besiege(siege, clients, draw)
    finally:
        for client in clients:
            client.stop()
    try:
        assert [error for client in clients for error in client.errors] == []
        eventually(lambda: unfinished(wire), lambda count: count == 0, what="the drain")
        for client in clients:
            ask_once_more(client)
        stories = [story for client in clients for story in client.stories]
        tell(siege, clients, stories)
        check(siege, clients, stories, {(job.job_type, job.job_id): job.status for job in wire.all_jobs()})
    finally:
        siege.end()
    for worker in siege.workers:
        worker.ready()  # the last one may have come a moment ago, and not listen for TERM yet
    assert [worker.stop() for worker in siege.workers] == [0] * len(siege.workers)
    assert siege.gateway.stop() == 0
    assert [line for program in fleet.programs for line in program.lines("bug")] == []


def check(siege: Siege, clients: list[Client], stories: list[Story], listed: dict[tuple[str, str], int]) -> None:
    """What the clients heard, what is listed and what the nodes say is the same."""
    assert siege.faults == dict.fromkeys(FAULTS, KILLS)
    assert {story.plan.name: problems for story in stories if (problems := story.problems())} == {}
    acknowledged = {(story.plan.name, story.job_id): story.ends[0].status for story in stories}
    assert acknowledged.items() <= listed.items()
    unknown = [name for name, _ in listed.keys() - acknowledged.keys()]
    assert len(unknown) == len(set(unknown)), "nothing was made twice"
    assert set(unknown) <= {name for client in clients for name in client.unknown}, (
        "nothing exists that nobody asked for"
    )
    eventually(siege.differences, lambda paths: not paths, what="the same nodes on every server")
    eventually(siege.left, lambda left: not any(left.values()), what="the end of what waits and runs")
    for _, job_id in listed:
        assert siege.nodes_of(job_id) - {"payload", "executions"} == {"result"}, "one result, and no bid"


def tell(siege: Siege, clients: list[Client], stories: list[Story]) -> None:
    """The numbers of a campaign, for whoever looks at them."""
    answered, lost = Counter[str](), Counter[str]()
    for client in clients:
        answered, lost = answered + client.answered, lost + client.lost
    ends = Counter(public.JobStatus.Name(story.ends[0].status) for story in stories if story.ends)
    lines = (
        f"SEED={SEED} faults {dict(siege.faults)}",
        f"jobs acknowledged {len(stories)}, ended {dict(ends)}",
        f"answered {dict(answered)}, lost {dict(lost)}",
    )
    sys.stdout.write("\n".join((*lines, "")))
