"""The coordinator over real HTTP and a real store: assignments of queue processes as workers come and go."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holdfast.core.lifecycle import DONE
from holdfast.errors import AbortedError, InvalidArgumentError
from holdfast.ports import Introduction
from holdfast.topologies.pipeline.backend.messages import (
    AssignmentReply,
    AssignmentRequest,
    HeartbeatRequest,
    LeaveRequest,
)
from holdfast.topologies.pipeline.backend.worker_session import PipelineSession
from holdfast.topologies.pipeline.postgres.database import PostgresStore
from tests.integration.http_client import ask
from tests.integration.pipeline.pipeline_in_process import PipelineHere, Ran
from tests.integration.pipeline.wait_until import happens


class Desk:
    """The coordinator's calls."""

    def __init__(self, here: PipelineHere) -> None:
        self.here = here

    async def request(self, worker_id: str, session: str = "s", **fields: Any) -> AssignmentReply:  # noqa: ANN401 - as Asking
        content = AssignmentRequest(worker_id=worker_id, session=session, **{"types": ["echo"], **fields})
        return await self._ask("request-assignment", content)

    async def beat(self, worker_id: str, session: str = "s", **fields: Any) -> AssignmentReply:  # noqa: ANN401 - as Beat has
        return await self._ask("heartbeat", HeartbeatRequest(worker_id=worker_id, session=session, **fields))

    async def leave(self, worker_id: str, session: str = "s") -> AssignmentReply:
        return await self._ask("release-assignment", LeaveRequest(worker_id=worker_id, session=session))

    async def _ask(self, path: str, content: object) -> AssignmentReply:
        address = self.here.coordinator_address
        return await self.here.lines.ask(address, f"/coordinator/{path}", content, kind=AssignmentReply)

    async def served(self) -> dict[str, list[str]]:
        served: dict[str, list[str]] = (await self.here.coordinator_stats())["queues"]
        return served


@asynccontextmanager
async def desk(store: PostgresStore, heartbeat_ms: int = 10_000) -> AsyncIterator[Desk]:
    """Two normal and one high queue process, and a coordinator that assigns each of them to few workers."""
    here = PipelineHere(store)
    here.breadth, here.heartbeat_ms = 1, heartbeat_ms
    async with here:
        yield Desk(here)


async def opened(here: PipelineHere, worker_id: str) -> PipelineSession:
    """A session that requests no jobs."""
    return await here.work().open(Introduction(worker_id, frozenset({"echo"})))


async def test_requests_without_a_body_register_no_worker(store: PostgresStore) -> None:
    """A request without a body registers no worker, and the response names the missing field."""
    async with desk(store) as one:
        for path in ("request-assignment", "heartbeat", "release-assignment"):
            told = (await ask(one.here.coordinator_address, "POST", f"/coordinator/{path}")).json
            assert told["status"] == "nobody"
            assert "worker_id" in told["message"]
        stats = (await ask(one.here.coordinator_address, "GET", "/coordinator/stats")).json
        assert stats["workers"] == []
        assert list(stats["queues"].values()) == [[], [], []]


async def test_queues_are_shared_out_and_kept_in_the_store(store: PostgresStore) -> None:
    """One worker gets all queue processes, a second one takes over some, and the store has both assignments."""
    async with desk(store) as one:
        alone = await one.request("w-1")
        assert (len(alone.high), len(alone.normal), alone.status) == (1, 2, "assigned")
        second = await one.request("w-2")
        first = await one.beat("w-1", version=alone.version)
        assert first.version != alone.version
        taken = [*first.high, *first.normal, *second.high, *second.normal]
        assert sorted(taken) == sorted([*alone.high, *alone.normal])

        async def kept() -> dict[str, tuple[str, ...]]:
            return {place.worker: place.queues for place in await store.workers.all()}

        expected = {"w-1": {*first.high, *first.normal}, "w-2": {*second.high, *second.normal}}
        await happens(kept, lambda found: {name: set(queues) for name, queues in found.items()} == expected)


async def test_every_kind_of_worker_has_every_queue(store: PostgresStore) -> None:
    """Workers of different kinds each get every queue process."""
    async with desk(store) as one:
        await one.request("w-1")
        other = await one.request("w-2", types=["mail"])
        assert len(other.high + other.normal) == 3
        assert {len(workers) for workers in (await one.served()).values()} == {2}


async def test_heartbeat_waits_for_changes(store: PostgresStore) -> None:
    """A heartbeat that waits is answered as soon as the worker's queue processes change."""
    async with desk(store) as one:
        alone = await one.request("w-1")
        waiting = asyncio.create_task(one.beat("w-1", version=alone.version, wait_ms=20_000))
        await one.request("w-2")
        changed = await waiting
        assert len(changed.high + changed.normal) < 3
        assert (await one.beat("w-1", version=changed.version, wait_ms=10)).version == changed.version


async def test_assignment_moves_when_a_worker_dies(store: PostgresStore) -> None:
    """When a worker misses its heartbeats, the other worker takes over its queue processes."""
    async with desk(store, heartbeat_ms=300) as one:
        await one.request("silent")
        session = await opened(one.here, "w-1")
        served = await happens(one.served, lambda served: all(workers == ["w-1"] for workers in served.values()))
        assert len(served) == 3
        await happens(lambda: _value(session), lambda held: len(held._puller.queues) == 3)
        await happens(store.workers.all, lambda places: [place.worker for place in places] == ["w-1"])
        await session.close()
        assert await happens(store.workers.all, lambda places: not places) == []


async def test_older_session_of_one_name_is_told(store: PostgresStore) -> None:
    """Of two sessions with one worker id, the older one ends with WORKER_SUPERSEDED and the newer one continues."""
    async with desk(store) as one:
        older = await opened(one.here, "w-1")
        await older.next()
        newer = await opened(one.here, "w-1")
        with pytest.raises(AbortedError) as told:
            await happens(older.next, lambda directive: directive.is_stopping)
        assert told.value.reason == "WORKER_SUPERSEDED"
        await older.close()
        await newer.next()
        assert [seat["worker_id"] for seat in (await one.here.coordinator_stats())["workers"]] == ["w-1"]
        await newer.close()


async def test_restart_keeps_every_assignment(store: PostgresStore) -> None:
    """A restarted coordinator keeps every worker's assignment."""
    async with desk(store) as one:
        sessions = [await opened(one.here, name) for name in ("w-1", "w-2")]
        before = await one.served()
        await happens(store.workers.all, lambda places: len(places) == 2 and all(place.queues for place in places))
        await one.here.stop_coordinator()
        began_s = time.monotonic()
        await one.here.start_coordinator()
        assert await happens(one.served, lambda served: all(served.values())) == before

        async def ages() -> list[int]:
            return [seat["heard_ms_ago"] for seat in (await one.here.coordinator_stats())["workers"]]

        def are_heard(found: list[int]) -> bool:
            return len(found) == 2 and max(found) < 1_000 * (time.monotonic() - began_s)

        await happens(ages, are_heard)
        assert await one.served() == before
        for session in sessions:
            await session.close()


async def test_worker_that_is_gone_after_a_restart_is_forgotten(store: PostgresStore) -> None:
    """A restarted coordinator forgets a worker that does not send a heartbeat in time."""
    async with desk(store) as one:
        await one.request("gone")
        await happens(store.workers.all)
        await one.here.stop_coordinator()
        one.here.heartbeat_ms = 300
        await one.here.start_coordinator()
        assert await happens(store.workers.all, lambda places: not places) == []


async def test_several_coordinators_share_a_store(store: PostgresStore) -> None:
    """A coordinator forgets workers that never called it, and keeps the places that another coordinator stored."""
    async with desk(store, heartbeat_ms=1_000) as one:
        session = await opened(one.here, "w-1")
        await happens(store.workers.all)
        async with desk(store, heartbeat_ms=2_000) as two:
            stats = await happens(two.here.coordinator_stats, lambda stats: stats["workers_lost"])
            assert (stats["workers_lost"], any(stats["queues"].values())) == (1, False)
            await two.request("w-2")
            both = await happens(store.workers.all, lambda places: places and places[-1].worker == "w-2")
            assert [place.worker for place in both] == ["w-1", "w-2"]
            assert all(workers == ["w-1"] for workers in (await one.served()).values())
        await session.close()


async def test_worker_whose_coordinator_is_away_says_itself_that_it_lives(store: PostgresStore) -> None:
    """A worker whose coordinator is down refreshes its own heartbeat in the store."""
    async with desk(store, heartbeat_ms=500) as one:
        session = await opened(one.here, "w-1")
        await happens(store.workers.all)
        await one.here.stop_coordinator()
        stopped_ms = await store.queues.now_ms()

        async def heard_ms() -> int:
            now_ms = await store.queues.now_ms()
            (place,) = await store.workers.all()
            return now_ms - place.heard_ms_ago

        first_ms = await happens(heard_ms, lambda at_ms: at_ms > stopped_ms)
        await happens(heard_ms, lambda at_ms: at_ms > first_ms + 400)
        await session.close()


async def test_worker_that_says_goodbye_is_forgotten_at_once(store: PostgresStore) -> None:
    """The coordinator forgets a worker at once when it says goodbye."""
    async with desk(store, heartbeat_ms=60_000) as one:
        await one.request("w-1")
        await happens(store.workers.all)
        await one.leave("w-1")
        await happens(store.workers.all, lambda places: not places)


async def test_worker_is_asked_to_drain(store: PostgresStore) -> None:
    """A drain that is set in the store reaches the worker, and its queue processes go to other workers."""
    ran = Ran()
    async with desk(store) as one, one.here.worker("w-1", ran.handlers()) as worker:
        one.here.add_watcher()
        await one.here.ended(await one.here.submit())
        await happens(store.workers.all)
        await store.workers.ask_to_drain("w-1")
        assert worker.task is not None
        await worker.task
        assert (await one.here.coordinator_stats())["workers"] == []


async def test_worker_that_left_may_register_again(store: PostgresStore) -> None:
    """A heartbeat after a goodbye is answered with `unknown`, and the worker can then register again."""
    async with desk(store) as one:
        await one.request("w-1")
        assert (await one.leave("w-1", "other")).status == "replaced"
        assert (await one.leave("w-1")).status == "released"
        assert (await one.beat("w-1")).status == "unknown"
        assert (await one.leave("w-1")).status == "unknown"
        assert (await one.request("w-1")).status == "assigned"


@pytest.mark.parametrize(
    "fields",
    [
        {"worker_id": "w" * 200},
        {"worker_id": "w", "slots": 0},
        {"worker_id": "w\0"},
        {"worker_id": "w", "session": "s\0"},
        {"worker_id": "w", "types": ["echo\0"]},
        {"worker_id": "w", "queues": [""]},
    ],
)
async def test_impossible_workers_are_refused(store: PostgresStore, fields: dict[str, Any]) -> None:
    """The coordinator refuses workers with invalid names or slots, because the database cannot store them."""
    async with desk(store) as one:
        with pytest.raises(InvalidArgumentError):
            await one._ask("request-assignment", fields)


async def test_work_goes_on_without_a_coordinator(store: PostgresStore) -> None:
    """Without a coordinator, workers keep their queue processes, and a new worker is assigned when it is back."""
    ran = Ran()
    async with desk(store) as one, one.here.worker("w-1", ran.handlers()):
        one.here.add_watcher()
        await one.here.ended(await one.here.submit())
        await one.here.stop_coordinator()
        assert {view.state for view in await one.here.ended(await one.here.submit(5))} == {DONE}
        async with one.here.worker("w-2", ran.handlers()):
            await one.here.start_coordinator()
            await happens(one.served, lambda served: ["w-2"] in served.values())
            assert {view.state for view in await one.here.ended(await one.here.submit(5))} == {DONE}


async def _value(value: PipelineSession) -> PipelineSession:
    return value
