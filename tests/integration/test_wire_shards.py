"""The wire of a cluster's node: connections that concern a shard, on the port that forwards all others."""

from collections.abc import AsyncIterator
from io import BytesIO
from pathlib import Path

import pytest

from holdfast.client.access import NO_CREDENTIALS
from holdfast.client.discovered_jobs import jobs_at
from holdfast.client.discovered_work import DiscoveredWork
from holdfast.client.nodes_link import DiscoveredLink
from holdfast.core.capabilities import MONOLITH
from holdfast.core.model import Template
from holdfast.core.owner import Ownership, owner_index
from holdfast.ports import Introduction, JobDraft
from holdfast.server.backend import Backend
from holdfast.server.ledger_server import LedgerServer
from holdfast.server.public_server import PublicServer
from holdfast.server.wire.connection import WireService
from holdfast.settings import Settings
from holdfast.wire.messages import NOT_LEADER, SHARD_NEEDED, VERSION, WORK
from holdfast.wire.methods import STATS, Request
from tests.integration.raw_wire import raw_wire

SHARDS = 2
TEMPLATES = [Template("brew")]


class LocalShards:
    """The shards of a node: each is a ledger of this process. `leaders` are the addresses that it names."""

    def __init__(self, servers: list[LedgerServer]) -> None:
        self.servers = servers
        self.services = [
            WireService(Backend(one.jobs, one.work, one.admin, one.feed, one.backend.schedules), one.terms)
            for one in servers
        ]
        self.led = set(range(len(servers)))
        self.leaders = [""] * len(servers)

    @property
    def total(self) -> int:
        """The number of shards."""
        return len(self.servers)

    def service(self, shard: int) -> WireService | None:
        """Returns the service of a shard that this node leads."""
        return self.services[shard] if shard in self.led else None

    def leader(self, shard: int) -> str:
        """Returns the leader of a shard."""
        return self.leaders[shard]


class RunningNode:
    """A node, its shards and its address."""

    def __init__(self, shards: LocalShards, public: PublicServer) -> None:
        self.shards = shards
        self.public = public
        self.address = public.addresses["wire"]


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[RunningNode]:
    """A node that leads two shards."""
    servers = []
    for shard in range(SHARDS):
        settings = Settings(data=str(tmp_path / f"shard-{shard}"), port=0, no_http=True, log_level="error")
        server = LedgerServer(settings, log_stream=BytesIO(), ownership=Ownership(index=shard, nodes=SHARDS))
        await server.start()
        servers.append(server)
    shards = LocalShards(servers)
    public = PublicServer(
        Backend(servers[0].jobs, declared=MONOLITH),
        Settings(data=str(tmp_path / "node"), port=0, no_http=True),
        has_grpc=False,
        shards=shards,
    )
    await public.start()
    yield RunningNode(shards, public)
    for service in shards.services:
        await service.stop(0)
    await public.stop(0)
    for server in servers:
        await server.stop()


@pytest.mark.parametrize("shard", range(SHARDS))
async def test_connection_concerns_its_shard(node: RunningNode, shard: int) -> None:
    """Calls on a connection that names a shard are answered by the ledger of that shard."""
    async with raw_wire(node.address) as line:
        assert (await line.open(shard=shard)).version == VERSION
        line.call(1, STATS, Request())
        assert STATS.decode_response((await line.reply()).body).node_index == shard


async def test_node_names_the_leader_of_another_shard(node: RunningNode) -> None:
    """A node that does not lead the shard refuses the connection, and names the leader."""
    node.shards.led.discard(1)
    node.shards.leaders[1] = "127.0.0.1:9"
    async with raw_wire(node.address) as line:
        opened = await line.open(shard=1)
        assert (opened.reason, opened.leader, opened.shards) == (NOT_LEADER, "127.0.0.1:9", SHARDS)
        assert await line.rest() == b""


@pytest.mark.parametrize("shard", [SHARDS, -2, 1 << 40])
async def test_shard_that_does_not_exist_is_refused(node: RunningNode, shard: int) -> None:
    """A number that is no shard of this cluster is refused."""
    async with raw_wire(node.address) as line:
        assert (await line.open(shard=shard)).reason == "SHARD_UNKNOWN"


async def test_server_without_shards_refuses_a_shard(node: RunningNode) -> None:
    """A server that belongs to no cluster says that it has no shard."""
    async with raw_wire(node.shards.servers[0].addresses["wire"]) as line:
        opened = await line.open(shard=0)
        assert (opened.reason, opened.shards) == ("SHARD_UNKNOWN", 0)


async def test_worker_without_a_shard_learns_that_it_needs_one(node: RunningNode) -> None:
    """A worker that names no shard is refused with a reason that a newer worker understands."""
    async with raw_wire(node.address) as line:
        assert (await line.open(WORK)).reason == SHARD_NEEDED


async def test_connections_of_a_lost_shard_end(node: RunningNode) -> None:
    """When a node stops to lead a shard, the connections of that shard end, and no others."""
    async with raw_wire(node.address) as lost, raw_wire(node.address) as kept:
        await lost.open(shard=0)
        await kept.open(shard=1)
        await node.shards.services[0].stop(0)
        await lost.rest()
        kept.call(1, STATS, Request())
        assert (await kept.reply()).id == 1


async def test_client_submits_to_the_owners(node: RunningNode) -> None:
    """A client of some addresses finds the shards, and each job is in the shard that owns its id."""
    jobs = await jobs_at([node.address], NO_CREDENTIALS)
    async with jobs:
        submitted = await jobs.submit(TEMPLATES, [JobDraft() for _ in range(20)])
        assert not submitted.refusals
        for job_id in submitted.job_ids:
            ledger = node.shards.servers[owner_index(job_id, SHARDS)]
            assert (await ledger.jobs.get(job_id)).id == job_id


async def test_link_finds_the_shards_at_its_first_call(node: RunningNode) -> None:
    """The link of an app decides at its first call, because a URL does not say what is at its addresses."""
    link = DiscoveredLink([node.address, "127.0.0.1:1"])
    try:
        submitted = await link.call(lambda ports: ports.jobs.submit(TEMPLATES, [JobDraft()]))
        job = await link.call(lambda ports: ports.jobs.get(submitted.job_ids[0]))
        assert job.id == submitted.job_ids[0]
    finally:
        await link.close()


async def test_worker_gets_the_jobs_of_all_shards(node: RunningNode) -> None:
    """A worker of one address opens a session with the leader of every shard."""
    jobs = await jobs_at([node.address], NO_CREDENTIALS)
    async with jobs:
        submitted = await jobs.submit(TEMPLATES, [JobDraft() for _ in range(20)])
        session = await DiscoveredWork([node.address]).open(Introduction("w", frozenset({"brew"}), slots=20))
        await session.want(20)
        leased = set[str]()
        while len(leased) < len(submitted.job_ids):
            leased |= {lease.job_id for lease in (await session.next()).leases}
        await session.close()
        assert leased == set(submitted.job_ids)
