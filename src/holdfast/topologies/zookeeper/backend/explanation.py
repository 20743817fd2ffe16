"""Explains the state of a job in a sentence. The first reason that applies is given, in the order of the checks."""

import asyncio

from holdfast.core.lifecycle import RUNNING, TERMINAL
from holdfast.core.outcomes import delay_text, end_text
from holdfast.core.unknown_types import unknown_type_text
from holdfast.topologies.zookeeper.backend.connection import EnsembleConnection
from holdfast.topologies.zookeeper.backend.paths import BACK, bucket_name, posting_named
from holdfast.topologies.zookeeper.backend.records import Record
from holdfast.topologies.zookeeper.backend.worker_nodes import WorkerNodeKind, kind_in

Answer = tuple[str, str]


async def explain(connection: EnsembleConnection, record: Record, summary: str = "") -> Answer:
    """Returns a stable reason and a sentence; the reasons are those of the other backends, as far as they apply.

    `summary` is the summary of the result of an ended job.
    """
    if record.state in TERMINAL:
        return "ENDED", end_text(record.state, record.attempts, record.failure_reason, summary)
    if record.state == RUNNING:
        return await _running(connection, record)
    return (
        _delayed(connection, record) or await _without_worker(connection, record) or await _behind(connection, record)
    )


async def _running(connection: EnsembleConnection, record: Record) -> Answer:
    asked = "; it was asked to stop" if record.cancel_requested else ""
    sentence = f"it runs: leased by {record.worker}, attempt {record.attempts}{asked}"
    if await connection.exists(connection.paths.bid(record.id)) is None:
        sentence += "; that worker's session has ended, and a steward will recover the job"
    return "RUNNING", sentence


def _delayed(connection: EnsembleConnection, record: Record) -> Answer | None:
    wait_ms = record.not_before_ms - connection.now_ms()
    if wait_ms <= 0:
        return None
    return "DELAYED", delay_text(wait_ms, record.failures)


async def _without_worker(connection: EnsembleConnection, record: Record) -> Answer | None:
    template, paths = record.template, connection.paths
    names = await connection.children(paths.workers) or []
    nodes = await asyncio.gather(*(connection.get(f"{paths.workers}/{name}") for name in names))
    kinds: list[WorkerNodeKind] = [kind_in(node.data) for node in nodes if node is not None]
    if not kinds:
        return "NO_WORKER", "no worker is connected; start one with `holdfast worker -A module:app`"
    knowing = [kind for kind in kinds if template.route in kind.types]
    if not knowing:
        return "TYPE_UNKNOWN", unknown_type_text(template.route, len(kinds))
    if not any(not kind.queues or template.queue in kind.queues for kind in knowing):
        return "QUEUE_UNSERVED", f"no worker that knows {template.route!r} serves the queue {template.queue!r}"
    return None


async def _behind(connection: EnsembleConnection, record: Record) -> Answer:
    """Counts the jobs ahead in its lane: in its bucket by name, in earlier buckets by their number."""
    lane = connection.paths.lane(record.lane)
    own = BACK if record.bucket < 0 else bucket_name(record.bucket)
    buckets = sorted(await connection.children(lane) or [], key=lambda name: (name != BACK, name))
    before = buckets[: buckets.index(own)] if own in buckets else []
    stats = await asyncio.gather(*(connection.exists(f"{lane}/{name}") for name in before))
    ahead = sum(stat.children for stat in stats if stat is not None)
    postings = sorted(posting_named(own, name) for name in await connection.children(f"{lane}/{own}") or [])
    ahead += next((index for index, posting in enumerate(postings) if posting.job_id == record.id), 0)
    if ahead == 0:
        return "NEXT", "it is next in its queue and waits for a free slot"
    return "BEHIND_OTHERS", f"it waits behind {_count(ahead, 'other job')} of its queue, type and priority"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
