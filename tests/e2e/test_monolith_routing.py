"""Routing among equal nodes: the client computes the owner, and nodes forward nothing."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from uuid import uuid4

import grpc
import pytest

from holdfast.client.endpoints import TcpEndpoint
from holdfast.client.remote import RemoteJobs
from holdfast.client.routed_jobs import RoutedJobs
from holdfast.client.routed_work import RoutedWork
from holdfast.client.wire_transport import tcp_transport
from holdfast.client.wire_work import WireWork
from holdfast.core.commands import ReportRow
from holdfast.core.lifecycle import CANCELED, DONE, QUEUED
from holdfast.core.model import Extra, Template
from holdfast.core.owner import owner_index
from holdfast.errors import NotFoundError
from holdfast.ports import Assignment, Introduction, JobDraft, JobQuery
from holdfast.proto import taskqueue_public_pb2 as public
from tests.e2e.grpc_client import Wire
from tests.e2e.nodes import NodeSet, wait_for_the_slow
from tests.e2e.preloaded_fleet import loaded_fleet_in
from tests.e2e.preloaded_prompt import LoadedProgram

TEMPLATES = [Template("brew")]
#: Computed for three nodes with `printf %s KEY | sha256sum | cut -c1-16` and `bc`.
OWNERS = {"order-17": 2, "abc": 0, "größe": 0, "f47ac10b-58cc-4372-a567-0e02b2c3d479": 1}


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raises the client deadlines, so that a stalled node is not skipped."""
    wait_for_the_slow(monkeypatch)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory, loaded: LoadedProgram) -> Iterator[NodeSet]:
    """Three nodes without slots, for all tests of the module."""
    folder = tmp_path_factory.mktemp("nodes")
    with loaded_fleet_in(folder, loaded) as fleet:
        nodes = NodeSet(fleet, folder / "data", "--log-level", "error")
        nodes.start()
        nodes.connect()
        yield nodes


@pytest.fixture
async def jobs(nodes: NodeSet) -> AsyncIterator[RoutedJobs]:
    """A client that routes calls to the owner."""
    async with RoutedJobs(nodes.addresses) as jobs:
        yield jobs


def has(wire: Wire, job_id: str) -> bool:
    """Whether the node itself has the job."""
    try:
        wire.status(job_id)
    except grpc.RpcError as error:
        if error.code() != grpc.StatusCode.NOT_FOUND:
            raise
        return False
    return True


def homes(nodes: NodeSet, job_id: str) -> list[int]:
    """Returns the nodes that have the job."""
    return [index for index, wire in enumerate(nodes.wires) if has(wire, job_id)]


async def submit(jobs: RoutedJobs, *drafts: JobDraft) -> list[str]:
    """Submits drafts that must all be accepted, and returns their ids."""
    submitted = await jobs.submit(TEMPLATES, drafts)
    assert submitted.refusals == {}
    return submitted.job_ids


@pytest.mark.parametrize("key", ["order-17", "abc", "größe"])
async def test_submit_with_a_request_id_goes_to_its_owner(nodes: NodeSet, jobs: RoutedJobs, key: str) -> None:
    """The client sends a submit with a request id to the owner of that id, and no other node has the job."""
    (job_id,) = await submit(jobs, JobDraft(extra=Extra(request_id=key)))
    assert homes(nodes, job_id) == [OWNERS[key]] == [owner_index(job_id, 3)]
    again = await jobs.submit(TEMPLATES, [JobDraft(extra=Extra(request_id=key))])
    assert (again.job_ids, again.existing) == ([job_id], frozenset({0}))


async def test_submit_with_a_unique_key_goes_to_its_owner(nodes: NodeSet, jobs: RoutedJobs) -> None:
    """The client sends a submit with a unique key to its owner, so the key is unique over all nodes."""
    (job_id,) = await submit(jobs, JobDraft(extra=Extra(unique_key="order-17")))
    assert homes(nodes, job_id) == [OWNERS["order-17"]]
    async with RoutedJobs(nodes.addresses) as other:
        found = await other.submit(TEMPLATES, [JobDraft(payload=b"other", extra=Extra(unique_key="order-17"))])
    assert (found.job_ids, found.existing) == ([job_id], frozenset({0}))


async def test_submit_with_an_id_goes_to_its_owner(nodes: NodeSet, jobs: RoutedJobs) -> None:
    """The client sends a submit with a job id to the id's owner, which keeps the id."""
    job_id = "f47ac10b-58cc-4372-a567-0e02b2c3d479"
    assert await submit(jobs, JobDraft(id=job_id)) == [job_id]
    assert homes(nodes, job_id) == [OWNERS[job_id]]


async def test_submits_without_a_key_go_to_the_nodes_in_turn(nodes: NodeSet, jobs: RoutedJobs) -> None:
    """The client distributes submits without a key round-robin, also within a batch, and nodes create ids they own."""
    ids = [(await submit(jobs, JobDraft()))[0] for _ in range(7)]
    ids += await submit(jobs, *[JobDraft()] * 6)
    turns = [homes(nodes, job_id) for job_id in ids]
    assert all(after == [(before[0] + 1) % 3] for before, after in pairwise(turns))
    assert [[owner_index(job_id, 3)] for job_id in ids] == turns


async def test_raw_submits_are_kept_where_they_are_sent(nodes: NodeSet) -> None:
    """A node that gets a submit directly keeps the job, creates an id it owns, and lists only its own jobs."""
    sent = {index: [wire.new() for _ in range(5)] for index, wire in enumerate(nodes.wires)}
    for index, ids in sent.items():
        assert {owner_index(job_id, 3) for job_id in ids} == {index}
        assert all(homes(nodes, job_id) == [index] for job_id in ids)
        listed = {job.job_id for job in nodes.wires[index].all_jobs()}
        assert listed.issuperset(ids)
        assert all(listed.isdisjoint(others) for other, others in sent.items() if other != index)


async def test_id_of_another_owner_is_refused_by_itself(nodes: NodeSet) -> None:
    """A node refuses a draft with an id of another owner and accepts the rest of the batch."""
    foreign = "f47ac10b-58cc-4372-a567-0e02b2c3d479"
    async with RemoteJobs(tcp_transport(nodes.addresses[0])) as one:
        submitted = await one.submit(TEMPLATES, [JobDraft(), JobDraft(id=foreign), JobDraft(payload=b"last")])
        kept = [await one.payload(job_id) for job_id in submitted.job_ids if job_id]
    assert [bool(job_id) for job_id in submitted.job_ids] == [True, False, True]
    refusal = submitted.refusals[1]
    assert (refusal.code.value, refusal.reason) == ("INVALID_ARGUMENT", "NOT_THE_OWNER")
    assert "node 1 of 3" in refusal.message
    assert kept == [b"", b"last"]
    assert homes(nodes, foreign) in ([], [1])


async def test_node_names_the_owner_of_a_job_of_another_node(nodes: NodeSet) -> None:
    """A node answers NOT_FOUND for a job of another node and names the owner, and an id of its own is just unknown."""
    async with RemoteJobs(tcp_transport(nodes.addresses[0])) as one:
        for call in (one.get, one.result, one.explain, lambda job_id: one.cancel(job_id, "")):
            with pytest.raises(NotFoundError, match="belongs to node 1 of 3, and this is node 0; connect to all"):
                await call("f47ac10b-58cc-4372-a567-0e02b2c3d479")
            with pytest.raises(NotFoundError, match="never existed"):
                await call("nobody's")


async def test_everything_that_names_a_job_reaches_its_owner(jobs: RoutedJobs) -> None:
    """Every call about one job reaches the owner of the job."""
    ids = await submit(jobs, *[JobDraft(payload=str(n).encode()) for n in range(6)])
    assert {owner_index(job_id, 3) for job_id in ids} == {0, 1, 2}
    for number, job_id in enumerate(ids):
        assert (await jobs.get(job_id)).id == job_id
        assert await jobs.payload(job_id) == str(number).encode()
        assert (await jobs.explain(job_id)).reason == "NO_WORKER"
        watch = jobs.watch(job_id)
        assert (await anext(watch)).id == job_id
        settled = asyncio.create_task(jobs.settled(job_id))
        assert (await jobs.cancel(job_id, "enough")).state == CANCELED
        assert [job.state async for job in watch] == [CANCELED]
        assert (await settled)[0].id == job_id
        assert (await jobs.result(job_id)).summary == "enough"
        again = await jobs.retry(job_id, f"again-{job_id}")
        assert owner_index(again, 3) == owner_index(job_id, 3)
        assert await jobs.retry(job_id, f"again-{job_id}") == again
        assert [entry.what for entry in await jobs.history(job_id)] == ["submitted", "canceled"]


async def test_answers_of_a_split_batch_are_in_order(jobs: RoutedJobs) -> None:
    """The client returns ids, repeats and refusals of a split batch in the order of its drafts."""
    keys = [uuid4().hex for _ in range(20)]
    drafts = [JobDraft(payload=key.encode(), extra=Extra(request_id=key)) for key in keys]
    first = await submit(jobs, *drafts[:10])
    mixed = [*drafts, JobDraft(template=5), JobDraft(payload=b"other", extra=Extra(request_id=keys[3]))]
    answer = await jobs.submit(TEMPLATES, mixed)
    assert answer.job_ids[:10] == first
    assert [await jobs.payload(job_id) for job_id in answer.job_ids[:20]] == [key.encode() for key in keys]
    assert answer.existing == frozenset(range(10))
    reasons = {place: refusal.reason for place, refusal in answer.refusals.items()}
    assert reasons == {20: "TEMPLATE_INDEX_INVALID", 21: "REQUEST_ID_REUSED"}


async def test_search_is_in_order_over_all_nodes(jobs: RoutedJobs) -> None:
    """A search over all nodes returns every job once and in creation order, with any page size."""
    template = [Template("sought", uuid4().hex)]
    ids = [(await jobs.submit(template, [JobDraft()])).job_ids[0] for _ in range(40)]
    for size in (1, 3, 7, 200):
        for oldest_first in (False, True):
            query, cursor, seen = JobQuery(queue=template[0].queue, oldest_first=oldest_first), "", list[str]()
            places: list[tuple[int, str]] = []
            while True:
                part = await jobs.find(query, cursor, size)
                seen += [job.id for job in part.jobs]
                places += [(job.created_ms if oldest_first else -job.created_ms, job.id) for job in part.jobs]
                cursor = part.cursor
                if not cursor:
                    break
            assert sorted(seen) == sorted(ids)
            assert places == sorted(places)


async def test_cursor_of_fewer_nodes_is_refused(nodes: NodeSet, jobs: RoutedJobs) -> None:
    """A client with fewer nodes refuses a cursor, because a cursor has one position per node."""
    query = JobQuery(type="brew")
    await submit(jobs, *[JobDraft()] * 6)
    part = await jobs.find(query, "", 1)
    async with RoutedJobs(nodes.addresses[:2]) as fewer:
        with pytest.raises(Exception, match="start again") as caught:
            await fewer.find(query, part.cursor, 1)
    assert getattr(caught.value, "reason", "") == "CURSOR_INVALID"


async def test_one_worker_works_for_all_nodes(nodes: NodeSet, jobs: RoutedJobs) -> None:
    """One worker session gets leases from all nodes, and each report reaches the node of its lease."""
    kind = f"kind-{uuid4().hex}"
    ids = (await jobs.submit([Template(kind)], [JobDraft(payload=str(n).encode()) for n in range(30)])).job_ids
    session = await RoutedWork(nodes.addresses).open(Introduction("one", frozenset({kind}), slots=30))
    try:
        leases: list[Assignment] = []
        await session.want(30)
        while len(leases) < 30:
            leases += (await session.next()).leases
        assert sorted(lease.job_id for lease in leases) == sorted(ids)
        assert len({lease.token for lease in leases}) == 30
        assert {lease.token: (await jobs.get(lease.job_id)).token for lease in leases[:3]} == {
            lease.token: lease.token for lease in leases[:3]
        }
        rows = [ReportRow(lease.job_id, lease.token, DONE, lease.payload) for lease in leases]
        await session.report(1, rows[:15])
        await session.report(2, rows[15:])
        while (await session.next()).reported < 2:
            pass
    finally:
        await session.close()
    assert [(await jobs.result(job_id)).output for job_id in ids] == [str(n).encode() for n in range(30)]
    assert sum(wire.status(ids[0]).status == public.DONE for wire in nodes.wires if has(wire, ids[0])) == 1


async def test_room_that_was_recalled_is_not_filled(nodes: NodeSet) -> None:
    """A worker that recalls its credit gets no lease until it sends credit again."""
    kind = f"kind-{uuid4().hex}"
    session = await WireWork(TcpEndpoint(nodes.addresses[0])).open(
        Introduction(f"w-{kind}", frozenset({kind}), slots=5)
    )
    async with RemoteJobs(tcp_transport(nodes.addresses[0])) as one:
        try:
            await session.next()
            await session.want(5)
            await session.recall()
            while not (await session.next()).is_recalled:
                pass
            (job_id,) = (await one.submit([Template(kind)], [JobDraft()])).job_ids
            assert (await one.get(job_id)).state == QUEUED
            await session.want(1)
            assert [lease.job_id for lease in (await session.next()).leases] == [job_id]
        finally:
            await session.close()


async def test_worker_of_one_node_is_drained_through_all(nodes: NodeSet, jobs: RoutedJobs) -> None:
    """A drain through all nodes reaches a worker that only one node knows, and fails if no node knows it."""
    name = f"w-{uuid4().hex}"
    session = await WireWork(TcpEndpoint(nodes.addresses[1])).open(Introduction(name, frozenset({"brew"})))
    try:
        await session.next()
        await jobs.drain_worker(name)
        while not (await session.next()).is_drain_asked:
            pass
    finally:
        await session.close()
    with pytest.raises(NotFoundError, match="is connected"):
        await jobs.drain_worker("nobody")
