"""The cost of bidding in requests and names, independent of the number of waiting and finished jobs."""

from collections.abc import AsyncIterator

import msgspec
import pytest

from holdfast import limits
from holdfast.core.lifecycle import DONE
from holdfast.core.model import Extra
from holdfast.ports import JobDraft
from holdfast.testing.conformance.workplace import accepted
from holdfast.topologies.zookeeper import ensemble_limits
from holdfast.topologies.zookeeper.backend import bid_loop, lanes, steward
from holdfast.topologies.zookeeper.backend.connection import SessionPhase
from holdfast.topologies.zookeeper.backend.job_api import NodeJobs
from tests.integration.zookeeper.counting_proxy import CountingWay
from tests.integration.zookeeper.faults import DRAFT, JOB, Bidding, is_waiting, until
from tests.zookeeper import Place

#: A session in which the client library pings more than once a second.
SHORT_MS = 3_000


async def post(jobs: NodeJobs, count: int) -> list[str]:
    """Submits `count` jobs and returns their ids."""
    ids: list[str] = []
    while len(ids) < count:
        size = min(limits.BATCH_JOBS_MAX, count - len(ids))
        ids += accepted(await jobs.submit([JOB], [DRAFT] * size))
    return ids


class TestPosting:
    """The memory of a process for its lanes."""

    async def test_lanes_that_are_remembered_are_bounded(
        self, bidding: Bidding, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A gateway remembers a bounded number of lanes, and posts jobs of all others too."""
        monkeypatch.setattr(lanes, "_LANES_MAX", 3)
        jobs = NodeJobs(await bidding.client())
        templates = [msgspec.structs.replace(JOB, queue=f"of-user-{number}") for number in range(8)]
        drafts = [JobDraft(template=number) for number in range(8)]
        assert len(accepted(await jobs.submit(templates, drafts))) == 8
        known = jobs._node_changes.lanes
        assert 0 < len(known._open) <= 3
        assert len(known._locks) == 0


class TestTaking:
    """The next job is found in the first bucket."""

    @pytest.mark.parametrize("waiting", [100, 1_000, 10_000])
    async def test_next_job_costs_the_same_however_many_wait(self, bidding: Bidding, waiting: int) -> None:
        """A worker reads the names of one bucket and takes the oldest job with few requests, for any backlog."""
        ids = await post(NodeJobs(await bidding.client()), waiting)
        hand = await bidding.worker("w")
        looking_after = hand.session._steward  # type: ignore[attr-defined]
        await until(lambda: looking_after.is_waiting)
        traffic = bidding.connection_of("w").traffic
        before = dict(traffic)
        (lease,) = await hand.take()
        spent = {kind: traffic[kind] - before.get(kind, 0) for kind in ("children", "names", "get", "transact")}
        buckets = -(-waiting // ensemble_limits.BUCKET_JOBS)
        assert lease.job_id == ids[0]
        assert spent["names"] <= ensemble_limits.BUCKET_JOBS + buckets + 2  # plus the lane and the returned jobs
        assert (spent["children"], spent["get"], spent["transact"]) == (4, 2, 1)

    async def test_jobs_that_have_ended_are_not_listed(self, bidding: Bidding) -> None:
        """After many finished jobs, a worker reads as much for the next job as for the first."""
        jobs = NodeJobs(await bidding.client())
        hand = await bidding.worker("w")
        for _ in range(3):
            await post(jobs, 100)
            for lease in await hand.take(100):
                await hand.done(lease)
        (job_id,) = await post(jobs, 1)
        names = bidding.connection_of("w").traffic["names"]
        (lease,) = await hand.take()
        assert lease.job_id == job_id
        assert bidding.connection_of("w").traffic["names"] - names <= 10

    async def test_order_holds_over_buckets_that_are_taken_away_behind(self, bidding: Bidding) -> None:
        """Jobs come in submit order, and the buckets that they leave empty are removed."""
        client = await bidding.client()
        count = 2 * ensemble_limits.BUCKET_JOBS + 10
        ids = await post(NodeJobs(client), count)
        hand = await bidding.worker("w")
        taken = [lease.job_id for _ in range(count // 58) for lease in await hand.take(58)]
        assert taken == ids[: len(taken)]
        (lane,) = await client.children(client.paths.waiting) or []
        buckets = await client.children(f"{client.paths.waiting}/{lane}") or []
        assert sorted(buckets)[:1] == ["b-0000000002"]


class TestIdling:
    """Idle workers send no requests."""

    @pytest.fixture
    async def way(self, zookeeper: Place) -> AsyncIterator[CountingWay]:
        """A proxy to the server, for one worker."""
        way = CountingWay(zookeeper.hosts)
        yield way
        await way.close()

    async def test_idle_worker_sends_nothing_but_pings(self, bidding: Bidding, way: CountingWay) -> None:
        """An idle worker in line sends only pings, and gets the next job."""
        jobs = NodeJobs(await bidding.client())
        bidding.place = Place(await way.open(), bidding.place.root)
        hand = await bidding.worker("idle", session_ms=SHORT_MS)
        await hand.session.want(1)
        await hand.session.extend()
        changes: list[SessionPhase] = []
        bidding.connection_of("idle").when_changed.append(changes.append)
        is_whole = False
        while not is_whole:  # a late ping breaks the connection, and the reconnect sends requests
            changes.clear()
            await until(lambda: is_waiting(hand))
            await way.until_pings(1)
            asked = way.requests
            await way.until_pings(4)
            is_whole = not changes
        assert way.requests == asked
        (job_id,) = await post(jobs, 1)
        assert [lease.job_id for lease in await hand.leases()] == [job_id]
        await hand.session.close()

    async def test_watches_do_not_grow_with_the_time_in_which_nothing_comes(
        self, bidding: Bidding, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A worker that checks again after a long idle time sets each watch only once."""
        monkeypatch.setattr(bid_loop, "_LOOK_S", 0.01)
        monkeypatch.setattr(steward, "_TIDY_S", 0.01)
        for name in ("first", "second"):
            await bidding.idle(name)
        connections = [bidding.connection_of(name) for name in ("first", "second")]
        enough = min(each.traffic["children"] for each in connections) + 100
        await until(lambda: all(each.traffic["children"] > enough for each in connections))
        for client in (each._client for each in connections):
            watched = [*client._data_watchers.values(), *client._child_watchers.values()]
            assert max(map(len, watched)) <= 2  # bids and stewards may watch the same node

    async def test_one_job_wakes_one_worker_and_its_successor(self, bidding: Bidding) -> None:
        """One job wakes the first of ten idle workers, and its departure from the line wakes the second."""
        jobs = NodeJobs(await bidding.client())
        names = [f"w{number}" for number in range(10)]
        hands = {}
        for name in names:
            hands[name] = await bidding.idle(name)
        await until(lambda: all(map(is_waiting, hands.values())))
        before = {name: bidding.connection_of(name).traffic.copy() for name in names}
        await post(jobs, 1)
        (lease,) = await hands["w0"].leases()
        await hands["w0"].done(lease)
        assert (await jobs.get(lease.job_id)).state == DONE
        rings = before["w1"]["rings"]
        await until(lambda: bidding.connection_of("w1").traffic["rings"] > rings and is_waiting(hands["w1"]))
        woken = [name for name in names if bidding.connection_of(name).traffic["rings"] > before[name]["rings"]]
        busy = [name for name in names if bidding.connection_of(name).traffic != before[name]]
        assert woken == busy == ["w0", "w1"]


class TestSizes:
    """Data that does not fit into a node is refused before it is sent."""

    async def test_payload_over_the_limit_is_refused_by_name_and_size(self, bidding: Bidding) -> None:
        """A payload above the limit is refused with its size and the limit, and the rest of the batch is accepted."""
        client = await bidding.client()
        large = JobDraft(payload=bytes(ensemble_limits.TRANSACTION_BYTES_MAX))
        submitted = await NodeJobs(client).submit([JOB], [DRAFT, large, DRAFT])
        assert [bool(job_id) for job_id in submitted.job_ids] == [True, False, True]
        refusal = submitted.refusals[1]
        assert refusal.reason == "NODE_TOO_LARGE"
        assert str(ensemble_limits.TRANSACTION_BYTES_MAX) in refusal.message
        assert client.session_id != 0

    async def test_largest_job_ends_with_the_largest_output(self, bidding: Bidding) -> None:
        """A job with the largest payload and labels can end with the largest output."""
        jobs = NodeJobs(await bidding.client())
        value = "\N{GRINNING FACE}" * limits.LABEL_VALUE_CHARS_MAX
        labels = tuple((f"{number:0128d}", value) for number in range(limits.LABELS_MAX))
        small = JobDraft(payload=bytes(350_000), extra=Extra(labels=labels, headers=labels))
        large = JobDraft(payload=bytes(ensemble_limits.TRANSACTION_BYTES_MAX - 2_000))
        for draft in (small, large):
            (job_id,) = accepted(await jobs.submit([JOB], [draft]))
            hand = await bidding.worker(f"w{len(draft.payload)}")
            (lease,) = await hand.take()
            assert len(lease.payload) == len(draft.payload)
            await hand.done(lease, bytes(limits.OUTPUT_BYTES_MAX))
            assert len((await jobs.result(job_id)).output) == limits.OUTPUT_BYTES_MAX
