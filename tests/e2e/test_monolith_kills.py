"""kill -9 of nodes, one after the other and all of them in turn, while clients wait for answers and slots work."""

import asyncio
import random
import sys
from pathlib import Path

import pytest

from holdfast.client.reconnect_policy import patiently
from holdfast.client.routed import RoutedJobs
from holdfast.core.lifecycle import TERMINAL
from holdfast.core.model import Extra, Template
from holdfast.core.owner import owner_index
from holdfast.errors import HoldfastError
from holdfast.ports import JobDraft
from tests.e2e.campaign import kills_each, seed, victims
from tests.e2e.fleet import Fleet
from tests.e2e.history import checked
from tests.e2e.nodes import NodeSet

SEED = seed(20_261_115)
NODES = 3
KILLS = kills_each(4)
CLIENTS = 6
TEMPLATES = [Template("echo", max_losses=100)]


@pytest.fixture
def fleet(loaded_fleet: Fleet) -> Fleet:
    """How the program is loaded is no part of these tests."""
    return loaded_fleet


class Client:
    """Submits one job after the other, every second one under a key; a key whose answer is lost is asked for again."""

    def __init__(self, nodes: NodeSet, name: str) -> None:
        self.jobs = RoutedJobs(nodes.addresses)
        self._name = name
        self._count = 0
        self.is_stopping = False
        self.keyed: dict[str, str] = {}
        self.plain: set[str] = set()
        self.lost = 0

    async def run(self) -> None:
        while not self.is_stopping:
            self._count += 1
            if self._count % 2:
                key = f"{self._name}-{self._count}"
                self.keyed[key] = await self.submit(key)
            else:
                await self._submit_plain()

    async def submit(self, key: str) -> str:
        """The id under the key, however often it takes."""
        draft = JobDraft(payload=key.encode(), extra=Extra(request_id=key))
        while True:
            try:
                return (await self.jobs.submit(TEMPLATES, [draft])).job_ids[0]
            except HoldfastError as error:
                if not error.retryable:
                    raise
                self.lost += 1
                await asyncio.sleep(0)

    async def _submit_plain(self) -> None:
        """What is not acknowledged is not known, and not asked for again."""
        try:
            self.plain.update((await self.jobs.submit(TEMPLATES, [JobDraft(payload=b"plain")])).job_ids)
        except HoldfastError as error:
            if not error.retryable:
                raise
            self.lost += 1


class Siege:
    """The nodes, their clients, and the one who kills them in an order of his own."""

    def __init__(self, nodes: NodeSet) -> None:
        self._nodes = nodes
        self._draw = random.Random(SEED)
        self.kills = [0] * NODES
        self.clients = [Client(nodes, f"c{number}") for number in range(CLIENTS)]

    def count(self) -> int:
        return sum(len(client.keyed) + len(client.plain) for client in self.clients)

    async def run(self) -> None:
        running = [asyncio.create_task(client.run()) for client in self.clients]
        for victim in victims(range(NODES), KILLS, self._draw):
            await self._progress(running)
            await asyncio.sleep(self._draw.uniform(0, 0.02))
            program = self._nodes.programs[victim]
            if not program.output:  # it was killed while it starts: that counts only with what it had before
                await asyncio.to_thread(program.ready)
            program.kill()
            self.kills[victim] += 1
            self._nodes.begin_again(victim)
        for client in self.clients:
            client.is_stopping = True
        await asyncio.gather(*running)

    async def _progress(self, running: list["asyncio.Task[None]"]) -> None:
        wanted = self.count() + self._draw.randrange(1, 40)
        while self.count() < wanted:
            done = [task for task in running if task.done()]
            assert not done, done[0].exception()
            await asyncio.sleep(0.001)


@pytest.mark.slow
@pytest.mark.timeout(300 + 30 * KILLS)
async def test_kills_of_every_node_lose_nothing_that_was_acknowledged(fleet: Fleet, tmp_path: Path) -> None:
    """Every node is killed again and again under load; every acknowledged job is there, ended once, at its owner."""
    nodes = NodeSet(fleet, tmp_path / "data", "--log-level", "error", nodes=NODES, slots=1)
    nodes.start()
    siege = Siege(nodes)
    await siege.run()
    assert siege.kills == [KILLS] * NODES
    first = siege.clients[0]
    keyed = {key: job_id for client in siege.clients for key, job_id in client.keyed.items()}
    plain = {job_id for client in siege.clients for job_id in client.plain}
    lost = sum(client.lost for client in siege.clients)
    assert lost > 0, "no answer was ever lost"
    sys.stdout.write(f"SEED={SEED} kills {siege.kills}, acknowledged {len(keyed) + len(plain)}, lost answers {lost}\n")
    assert len({*keyed.values(), *plain}) == len(keyed) + len(plain), "every submission has a job of its own"
    for key, job_id in keyed.items():
        assert await first.submit(key) == job_id
    for job_id in (*keyed.values(), *plain):
        job, _ = await patiently(lambda job_id=job_id: first.jobs.settled(job_id))  # type: ignore[misc]
        assert job.state in TERMINAL
    for client in siege.clients:
        await client.jobs.close()
    assert [program.stop() for program in nodes.programs] == [0] * NODES
    models = [checked(nodes.data(index)) for index in range(NODES)]
    assert [model.unfinished for model in models] == [[]] * NODES
    assert {key: job_id for model in models for key, job_id in model.keys.items()} == keyed
    for index, model in enumerate(models):
        assert {owner_index(key, NODES) for key in model.keys} <= {index}
        assert {owner_index(job_id, NODES) for job_id in model.jobs} <= {index}
    assert plain <= {job_id for model in models for job_id in model.jobs}
