"""Canceling against bids: whichever transaction comes first has its way, and the other finds another version.

Invariants: a job that waits is ended, with its posting, by one transaction, so no bid can win afterwards; a job that
runs is only asked to stop, and its worker hears of it by the same transaction.
"""

from holdfast.core.commands import CancelReply
from holdfast.core.lifecycle import QUEUED, TERMINAL, State
from holdfast.core.tasks import unknown_job
from holdfast.core.validation import check_reason
from holdfast.topologies.zookeeper.backend.node_changes import Changing, Decided
from holdfast.topologies.zookeeper.backend.paths import BACK, bucket_name, posting_named
from holdfast.topologies.zookeeper.backend.records import DELAYED, Kept, Record


async def cancel(changing: Changing, job_id: str, reason: str) -> CancelReply:
    """`NotFoundError` if there is no such job."""
    refusal = check_reason(reason)
    if refusal:
        raise refusal.error()
    kept = await changing.read(job_id)
    if kept is None:
        raise unknown_job(job_id).error()
    seen = kept

    async def decide(kept: Kept) -> Decided:
        nonlocal seen
        seen, record = kept, kept.record
        if record.state in TERMINAL or record.cancel_requested:
            return None
        if record.state == QUEUED:
            waits_at = await where(changing, record)
            return changing.moves.cancel_queued(kept, waits_at, reason, changing.connection.now_ms())
        stat = await changing.connection.exists(changing.paths.asked_of(record.worker))
        now_ms = changing.connection.now_ms()
        return changing.moves.ask_to_stop(kept, reason, now_ms, is_heard=stat is not None)

    changed = await changing.change(kept, decide, reason)
    if changed is not None:
        return CancelReply(State(changed.state), was_terminal=False, token=changed.token)
    record = seen.record
    return CancelReply(State(record.state), was_terminal=record.state in TERMINAL, token=record.token)


async def where(changing: Changing, record: Record) -> str:
    """The path of what makes a job wait; if it waits no longer, that is found out by whoever relies on it."""
    paths = changing.paths
    if record.bucket == DELAYED:
        return paths.delayed_job(record.not_before_ms, record.id)
    bucket = BACK if record.bucket < 0 else bucket_name(record.bucket)
    path = paths.bucket(record.lane, bucket)
    for name in await changing.connection.children(path) or []:
        if posting_named(bucket, name).job_id == record.id:
            return f"{path}/{name}"
    return f"{path}/{record.id}"
