"""Who gets what among equal nodes: the client finds the owner, and nodes forward nothing."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from uuid import uuid4

import grpc
import pytest

from holdfast.client.grpc_transport import GrpcCarrier
from holdfast.client.remote import RemoteJobs
from holdfast.client.routed import RoutedJobs
from holdfast.client.routed_work import RoutedWork
from holdfast.client.work_stream import StreamWork
from holdfast.core.commands import ReportRow
from holdfast.core.lifecycle import CANCELED, DONE, QUEUED
from holdfast.core.model import Extra, Template
from holdfast.core.owner import owner_index
from holdfast.errors import NotFoundError
from holdfast.ports import Assignment, Introduction, JobDraft, JobQuery
from holdfast.proto import taskqueue_public_pb2 as public
from tests.e2e.loaded import LoadedProgram
from tests.e2e.loaded_fleet import loaded_fleet_in
from tests.e2e.nodes import NodeSet, wait_for_the_slow
from tests.e2e.wire import Wire

TEMPLATES = [Template("brew")]
#: Made by `printf %s KEY | sha256sum | cut -c1-16` and `bc`, among three nodes.
OWNERS = {"order-17": 2, "abc": 0, "größe": 0, "f47ac10b-58cc-4372-a567-0e02b2c3d479": 1}


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that stands still for a moment is not passed over."""
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
    """A client that routes."""
    async with RoutedJobs(nodes.addresses) as jobs:
        yield jobs


def has(wire: Wire, job_id: str) -> bool:
    """Whether a node itself knows the job."""
    try:
        wire.status(job_id)
    except grpc.RpcError as error:
        if error.code() != grpc.StatusCode.NOT_FOUND:
            raise
        return False
    return True


def homes(nodes: NodeSet, job_id: str) -> list[int]:
    """The nodes that know the job."""
    return [index for index, wire in enumerate(nodes.wires) if has(wire, job_id)]


async def submit(jobs: RoutedJobs, *drafts: JobDraft) -> list[str]:
    """The ids of accepted jobs."""
    submitted = await jobs.submit(TEMPLATES, drafts)
    assert submitted.refusals == {}
    return submitted.job_ids


@pytest.mark.parametrize("key", ["order-17", "abc", "größe"])
async def test_submit_with_a_request_id_goes_to_its_owner(nodes: NodeSet, jobs: RoutedJobs, key: str) -> None:
    """The node that the locked rule names has the job, under an id of its own, and no other node knows it."""
    (job_id,) = await submit(jobs, JobDraft(extra=Extra(request_id=key)))
    assert homes(nodes, job_id) == [OWNERS[key]] == [owner_index(job_id, 3)]
    again = await jobs.submit(TEMPLATES, [JobDraft(extra=Extra(request_id=key))])
    assert (again.job_ids, again.existing) == ([job_id], frozenset({0}))


async def test_submit_with_a_unique_key_goes_to_its_owner(nodes: NodeSet, jobs: RoutedJobs) -> None:
    """So a unique key is unique over all nodes."""
    (job_id,) = await submit(jobs, JobDraft(extra=Extra(unique_key="order-17")))
    assert homes(nodes, job_id) == [OWNERS["order-17"]]
    async with RoutedJobs(nodes.addresses) as other:
        found = await other.submit(TEMPLATES, [JobDraft(payload=b"other", extra=Extra(unique_key="order-17"))])
    assert (found.job_ids, found.existing) == ([job_id], frozenset({0}))


async def test_submit_with_an_id_goes_to_its_owner(nodes: NodeSet, jobs: RoutedJobs) -> None:
    """An id made by a client is kept."""
    job_id = "f47ac10b-58cc-4372-a567-0e02b2c3d479"
    assert await submit(jobs, JobDraft(id=job_id)) == [job_id]
    assert homes(nodes, job_id) == [OWNERS[job_id]]


async def test_submits_without_a_key_go_to_the_nodes_in_turn(nodes: NodeSet, jobs: RoutedJobs) -> None:
    """One after the other, and within a batch too, each under an id that its node owns."""
    ids = [(await submit(jobs, JobDraft()))[0] for _ in range(7)]
    ids += await submit(jobs, *[JobDraft()] * 6)
    turns = [homes(nodes, job_id) for job_id in ids]
    assert all(after == [(before[0] + 1) % 3] for before, after in pairwise(turns))
    assert [[owner_index(job_id, 3)] for job_id in ids] == turns


async def test_raw_submits_are_kept_where_they_are_sent(nodes: NodeSet) -> None:
    """A node forwards nothing, mints ids that are its own, and lists only what it has."""
    sent = {index: [wire.new() for _ in range(5)] for index, wire in enumerate(nodes.wires)}
    for index, ids in sent.items():
        assert {owner_index(job_id, 3) for job_id in ids} == {index}
        assert all(homes(nodes, job_id) == [index] for job_id in ids)
        listed = {job.job_id for job in nodes.wires[index].all_jobs()}
        assert listed.issuperset(ids)
        assert all(listed.isdisjoint(others) for other, others in sent.items() if other != index)


async def test_id_of_another_owner_is_refused_by_itself(nodes: NodeSet) -> None:
    """A node that is sent an id of another node refuses that draft, and takes the others."""
    foreign = "f47ac10b-58cc-4372-a567-0e02b2c3d479"
    async with RemoteJobs(GrpcCarrier(nodes.addresses[0])) as one:
        submitted = await one.submit(TEMPLATES, [JobDraft(), JobDraft(id=foreign), JobDraft(payload=b"last")])
        kept = [await one.payload(job_id) for job_id in submitted.job_ids if job_id]
    assert [bool(job_id) for job_id in submitted.job_ids] == [True, False, True]
    refusal = submitted.refusals[1]
    assert (refusal.code.value, refusal.reason) == ("INVALID_ARGUMENT", "NOT_THE_OWNER")
    assert "node 1 of 3" in refusal.message
    assert kept == [b"", b"last"]
    assert homes(nodes, foreign) in ([], [1])


async def test_node_that_is_asked_for_a_job_of_another_says_whose_it_is(nodes: NodeSet) -> None:
    """It is not found there, and the sentence says where it is; an id that could be its own is merely unknown."""
    async with RemoteJobs(GrpcCarrier(nodes.addresses[0])) as one:
        for call in (one.get, one.result, one.explain, lambda job_id: one.cancel(job_id, "")):
            with pytest.raises(NotFoundError, match="belongs to node 1 of 3, and this is node 0; connect to all"):
                await call("f47ac10b-58cc-4372-a567-0e02b2c3d479")
            with pytest.raises(NotFoundError, match="never existed"):
                await call("nobody's")


async def test_everything_that_names_a_job_reaches_its_owner(jobs: RoutedJobs) -> None:
    """Status, result, payload, reasons, history, watch, cancel and retry are answered for jobs of every node."""
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
    """Ids, repetitions and refusals stand where their drafts do, whichever nodes they concern."""
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
    """Part by part, whatever their size, all jobs come once and in the order of their creation."""
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
    """A cursor holds a place for each node, so it is of no use for others."""
    query = JobQuery(type="brew")
    await submit(jobs, *[JobDraft()] * 6)
    part = await jobs.find(query, "", 1)
    async with RoutedJobs(nodes.addresses[:2]) as fewer:
        with pytest.raises(Exception, match="begin again") as caught:
            await fewer.find(query, part.cursor, 1)
    assert getattr(caught.value, "reason", "") == "CURSOR_INVALID"


async def test_one_worker_works_for_all_nodes(nodes: NodeSet, jobs: RoutedJobs) -> None:
    """Leases of every node reach one session, each token names one lease, and every report its own node."""
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
    """A worker that takes its room back is granted nothing more until it offers room again."""
    kind = f"kind-{uuid4().hex}"
    session = await StreamWork(nodes.addresses[0]).open(Introduction(f"w-{kind}", frozenset({kind}), slots=5))
    async with RemoteJobs(GrpcCarrier(nodes.addresses[0])) as one:
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
    """Nodes that do not know a worker are no reason to say that it was not asked; if none does, that is said."""
    name = f"w-{uuid4().hex}"
    session = await StreamWork(nodes.addresses[1]).open(Introduction(name, frozenset({"brew"})))
    try:
        await session.next()
        await jobs.drain_worker(name)
        while not (await session.next()).is_drain_asked:
            pass
    finally:
        await session.close()
    with pytest.raises(NotFoundError, match="is connected"):
        await jobs.drain_worker("nobody")
