"""A cluster of several nodes: leaders, clients and workers that find them, handovers and lost nodes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.client.access import NO_CREDENTIALS
from holdfast.client.discovered_work import DiscoveredWork
from holdfast.client.link import Link
from holdfast.client.nodes_link import DiscoveredLink
from holdfast.core.lifecycle import State
from holdfast.core.model import Template
from holdfast.core.owner import owner_index
from holdfast.ports import Assignment, JobDraft, JobView
from holdfast.worker.config import WorkerConfig
from holdfast.worker.handlers import Handler
from holdfast.worker.runtime import Worker
from tests.integration.cluster.nodes_in_process import Nodes, nodes_of, until, within

TEMPLATES = [Template("brew")]
NAMES = ("a", "b", "c")


@pytest.fixture
async def nodes(cluster: str, tmp_path: Path) -> AsyncIterator[Nodes]:
    """A cluster of three nodes and two shards."""
    async with nodes_of(cluster, tmp_path) as running:
        await running.start(*NAMES)
        yield running


@asynccontextmanager
async def app(nodes: Nodes) -> AsyncIterator[Link]:
    """A client of all nodes."""
    link = DiscoveredLink(nodes.addresses(), NO_CREDENTIALS)
    try:
        yield link
    finally:
        await link.close()


@asynccontextmanager
async def working(nodes: Nodes, run: Handler) -> AsyncIterator[Worker]:
    """A worker of all nodes."""
    worker = Worker(DiscoveredWork(nodes.addresses()), {"brew": run}, WorkerConfig("w", slots=4))
    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        worker.stop()
        await running


async def submitted(link: Link, count: int) -> list[str]:
    """Submits jobs and returns their ids."""
    reply = await link.call(lambda ports: ports.jobs.submit(TEMPLATES, [JobDraft() for _ in range(count)]))
    assert not reply.refusals
    return reply.job_ids


async def read(link: Link, job_id: str) -> JobView:
    """Reads a job."""
    return await link.call(lambda ports: ports.jobs.get(job_id))


async def ended(link: Link, job_id: str) -> JobView:
    """Waits for the end of a job."""
    async with asyncio.timeout(60):
        job, _ = await link.call(lambda ports: ports.jobs.settled(job_id), is_waiting=True)
    return job


async def brew(_: Assignment) -> bytes:
    return b"tea"


async def test_every_shard_has_one_leader(nodes: Nodes) -> None:
    """Each shard is served by exactly one node, and two shards by two nodes."""

    def leaders() -> list[list[str]]:
        return [[name for name in NAMES if nodes[name].service(shard) is not None] for shard in range(2)]

    await until(lambda: len({name for names in leaders() for name in names}) == 2)
    assert [len(names) for names in leaders()] == [1, 1]


async def test_jobs_run_whatever_shard_owns_them(nodes: Nodes) -> None:
    """A client submits to both shards, and one worker runs the jobs of both."""
    async with app(nodes) as link, working(nodes, Handler(brew)):
        for job_id in await submitted(link, 20):
            assert (await ended(link, job_id)).state is State.DONE


async def test_any_node_forwards_calls(nodes: Nodes) -> None:
    """The public server of each node answers for all shards, whichever it leads."""
    async with app(nodes) as link:
        job_ids = await submitted(link, 10)
        for name in NAMES:
            for job_id in job_ids:
                assert (await nodes[name].public_jobs.get(job_id)).state is State.QUEUED


async def test_followers_apply_what_the_leader_writes(nodes: Nodes) -> None:
    """Every node follows the frames of the shards that it does not lead."""
    async with app(nodes) as link:
        await submitted(link, 50)

        def ends() -> list[set[int]]:
            return [{nodes[name].position(shard) for name in NAMES} for shard in range(2)]

        await until(lambda: all(len(positions) == 1 and positions != {0} for positions in ends()))


async def test_planned_handover_fails_no_call(nodes: Nodes) -> None:
    """While a node is stopped in an orderly way, no call of a client fails, and every job is known afterwards."""
    async with app(nodes) as link:
        job_ids = await submitted(link, 4)
        stopping = asyncio.create_task(nodes.stop(await nodes.settled_leader()))
        while not stopping.done():
            job_ids += await submitted(link, 2)
        await stopping
        job_ids += await submitted(link, 4)
        for job_id in job_ids:
            assert (await read(link, job_id)).state is State.QUEUED


async def test_running_job_survives_a_handover(nodes: Nodes) -> None:
    """A worker keeps its lease while its shard gets another leader, and its report counts: one start, no loss."""
    begun, end = asyncio.Event(), asyncio.Event()

    async def slow(_: Assignment) -> bytes:
        begun.set()
        await end.wait()
        return b"tea"

    async with app(nodes) as link, working(nodes, Handler(slow)):
        (job_id,) = await submitted(link, 1)
        await within(begun.wait())
        await nodes.stop(await nodes.settled_leader(_owner(job_id)))
        await until(lambda: nodes.leader(_owner(job_id)))
        end.set()
        job = await ended(link, job_id)
        assert (job.state, job.attempts, job.losses) == (State.DONE, 1, 0)


async def test_leader_without_a_database_is_replaced(nodes: Nodes) -> None:
    """A leader that is cut off from the database stops to serve, another node leads, and no job is lost."""
    async with app(nodes) as link:
        job_ids = await submitted(link, 10)
        leader = await nodes.settled_leader()
        await nodes.cut_off(leader)
        await until(lambda: nodes.leader(0) not in ("", leader))
        for job_id in [*job_ids, *await submitted(link, 10)]:
            assert (await read(link, job_id)).id == job_id


async def test_node_that_was_cut_off_follows_again(nodes: Nodes) -> None:
    """A node whose database is back follows what the others have written meanwhile."""
    async with app(nodes) as link:
        leader = await nodes.settled_leader()
        await nodes.cut_off(leader)
        await until(lambda: nodes.leader(0) not in ("", leader))
        await submitted(link, 10)
        await nodes.let_back(leader)
        await until(lambda: all(len({nodes[name].position(shard) for name in NAMES}) == 1 for shard in range(2)))


def _owner(job_id: str) -> int:
    return owner_index(job_id, 2)
