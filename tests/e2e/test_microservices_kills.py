"""kill -9 of every role of the microservices while clients of the frozen contract submit, look, wait and cancel."""

import random
import sys
from collections import Counter
from pathlib import Path

import grpc
import pytest

from holdfast.core.digest import DIGEST_VERSION
from holdfast.core.lifecycle import TERMINAL
from holdfast.journal import JournalConfig, OsDisk
from holdfast.proto import taskqueue_public_pb2 as public
from holdfast.topologies.microservices.services.owner_journal import Machine, RecoveredOwner
from holdfast.topologies.microservices.state import envelopes, records, waiting_jobs
from tests.e2e.campaign import kills_each, seed, victims
from tests.e2e.contract_load import Client, Story
from tests.e2e.fleet import Fleet
from tests.e2e.history import FAR_FUTURE_MS, copy_of
from tests.e2e.services_siege import ROLES, Siege
from tests.e2e.waiting import eventually, pause
from tests.e2e.wire import Wire

SEED = seed(20_261_116)
KILLS = kills_each(1)
CLIENTS = 4
CALLS = {"submit", "status", "result", "cancel"}


def besiege(siege: Siege, clients: list[Client], draw: random.Random) -> None:
    """Kills whoever is next as soon as some more jobs were acknowledged, and a moment of chance has passed."""
    for victim in victims(ROLES, KILLS, draw):
        _kill(victim, siege, clients, draw)
    while not _lost(clients).keys() >= CALLS:  # every kind of call is to meet a kill
        _kill("gateway", siege, clients, draw)
    eventually(lambda: any(story.is_canceled for story in _stories(clients)), what="a job that is said to be canceled")


def _kill(victim: str, siege: Siege, clients: list[Client], draw: random.Random) -> None:
    siege.wait_for(victim)
    wanted = _progress(clients) + draw.randrange(1, 12)
    eventually(lambda: _progress(clients), lambda count: count >= wanted, what="progress")
    pause(draw.uniform(0, 0.03))
    siege.kill(victim)


def _lost(clients: list[Client]) -> Counter[str]:
    """How many calls of each kind had no answer; copied, because the clients go on counting."""
    return sum((Counter(client.lost) for client in clients), Counter[str]())


def _stories(clients: list[Client]) -> list[Story]:
    return [story for client in clients for story in tuple(client.stories)]


def _progress(clients: list[Client]) -> int:
    for client in clients:
        assert client.errors == []
    return sum(len(client.stories) for client in clients)


def settle(siege: Siege, clients: list[Client], wire: Wire) -> None:
    """Everybody is back, every client has its last answer, and every job its end."""
    for client in clients:
        client.stop()
    for role in ROLES:
        siege.wait_for(role)
    assert [error for client in clients for error in client.errors] == []
    eventually(lambda: unfinished(wire), lambda count: count == 0, what="the drain")


def unfinished(wire: Wire) -> int:
    """How many jobs have not ended, up to a page; -1 while somebody who knows is not reached yet."""
    try:
        return len(wire.page(public.QUEUED, public.RUNNING).jobs)
    except grpc.RpcError as error:
        if error.code() is not grpc.StatusCode.UNAVAILABLE:
            raise
        return -1


def ask_once_more(client: Client) -> None:
    """Every job that was acknowledged: its key, its status and its result."""
    for story in client.stories:
        if story.plan.is_keyed:
            eventually(lambda story=story: client.submit(story), what="the key")  # type: ignore[misc]
        eventually(lambda story=story: client.status(story), what="the status")  # type: ignore[misc]
        eventually(lambda story=story: client.result(story), what="the result")  # type: ignore[misc]


def recovered(machine: Machine, directory: Path, digest_version: int) -> None:
    """The machine becomes what an owner would start from."""
    config = JournalConfig(digest_version=digest_version)
    disk = OsDisk(copy_of(directory))
    RecoveredOwner.of(machine, disk, config, now_ms=FAR_FUTURE_MS, new_cluster_id=bytes(16)).journal.close()


def check_journals(data: Path, stories: list[Story]) -> None:
    """What the three owners have written down says the same as what the clients heard."""
    everything = envelopes.EnvelopeRetention(age_ms=1 << 40, envelopes=1 << 30, bytes=1 << 40)
    kept, stored, waiting = records.Records(), envelopes.Envelopes(everything), waiting_jobs.WaitingJobs(60_000)
    recovered(kept, data / "job", DIGEST_VERSION)
    recovered(stored, data / "result", DIGEST_VERSION)
    recovered(waiting, data / "queue", DIGEST_VERSION)
    for story in stories:
        job, envelope = kept.job(story.job_id), stored.find(story.job_id)
        assert job is not None
        assert envelope is not None
        assert job.state in TERMINAL
        assert (job.state, job.state) == (envelope.state, story.ends[0].status)
    assert len(waiting) == 0, "what has ended waits for nobody"


@pytest.mark.slow
@pytest.mark.timeout(300 + 60 * KILLS)
def test_kills_of_every_role_lose_nothing_that_was_acknowledged(fleet: Fleet, tmp_path: Path) -> None:
    """Each of the six is killed under load: every acknowledged job ends once, as was told, and nothing else exists."""
    draw = random.Random(SEED)
    siege = Siege(fleet, tmp_path / "data", draw)
    clients = [Client(fleet.wire(siege.target), f"c{number}", SEED) for number in range(CLIENTS)]
    wire = fleet.wire(siege.target)
    for client in clients:
        client.start()
    try:
        besiege(siege, clients, draw)
    finally:
        settle(siege, clients, wire)
    for client in clients:
        ask_once_more(client)
    stories = _stories(clients)
    answered, lost = sum((client.answered for client in clients), Counter[str]()), _lost(clients)
    tell(siege, stories, answered, lost)
    assert siege.kills >= Counter(dict.fromkeys(ROLES, KILLS))
    assert answered.keys() == lost.keys() == CALLS, "every kind met a kill"
    assert {story.plan.name: problems for story in stories if (problems := story.problems())} == {}
    listed = {(job.job_type, job.job_id): job.status for job in wire.all_jobs()}
    acknowledged = {(story.plan.name, story.job_id): story.ends[0].status for story in stories}
    assert acknowledged.items() <= listed.items()
    unknown = [name for name, _ in listed.keys() - acknowledged.keys()]
    assert len(unknown) == len(set(unknown)), "nothing was made twice"
    assert set(unknown) <= {name for client in clients for name in client.unknown}, (
        "nothing exists that nobody asked for"
    )
    assert siege.program.stop() == 0
    siege.log.read()
    assert siege.log.strange == []
    assert siege.log.events["bug"] == 0
    check_journals(tmp_path / "data", stories)


def tell(siege: Siege, stories: list[Story], answered: Counter[str], lost: Counter[str]) -> None:
    """The numbers of a campaign, for whoever looks at them."""
    ends = Counter(public.JobStatus.Name(story.ends[0].status) for story in stories if story.ends)
    at_once, before_a_run = sum(story.is_canceled for story in stories), sum(story.never_runs for story in stories)
    lines = (
        f"SEED={SEED} kills {dict(siege.kills)}, and while starting {dict(siege.kills_of_starting)}",
        f"jobs acknowledged {len(stories)}, ended {dict(ends)}",
        f"told to be canceled {at_once}, and that it will be before it runs {before_a_run}",
        f"answered {dict(answered)}, lost {dict(lost)}",
        f"log {dict(siege.log.events)}",
    )
    sys.stdout.write("\n".join((*lines, "")))
