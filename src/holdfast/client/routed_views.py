"""Answers of several nodes, merged into one."""

from collections import Counter
from collections.abc import Sequence

from holdfast.core.model import QueueMode
from holdfast.core.overview import most_common
from holdfast.ports import QueueView, Stats, WorkerView

#: If nodes have different modes of a queue, the most restrictive one is reported.
_SEVERITY = {QueueMode.OPEN: 0, QueueMode.DRAINING: 1, QueueMode.PAUSED: 2}


def queues(answers: Sequence[Sequence[QueueView]]) -> list[QueueView]:
    """Returns every queue of any node, by name, with the sums over all nodes."""
    by_name: dict[str, list[QueueView]] = {}
    for queue in (queue for answer in answers for queue in answer):
        by_name.setdefault(queue.name, []).append(queue)
    return [_queue(same) for _, same in sorted(by_name.items())]


def _queue(same: Sequence[QueueView]) -> QueueView:
    strictest = max(same, key=lambda queue: _SEVERITY[queue.mode])
    return QueueView(
        strictest.name,
        strictest.mode,
        strictest.reason,
        sum(queue.ready for queue in same),
        sum(queue.delayed for queue in same),
        sum(queue.running for queue in same),
        max(queue.oldest_age_ms for queue in same),
        most_common(sum((Counter(queue.types) for queue in same), Counter())),
    )


def workers(answers: Sequence[Sequence[WorkerView]]) -> list[WorkerView]:
    """Returns every worker once; its slots are the same at all nodes, its running jobs are added up."""
    by_id: dict[str, list[WorkerView]] = {}
    for worker in (worker for answer in answers for worker in answer):
        by_id.setdefault(worker.worker_id, []).append(worker)
    return [_worker(same) for _, same in sorted(by_id.items())]


def _worker(same: Sequence[WorkerView]) -> WorkerView:
    return WorkerView(
        same[0].worker_id,
        sorted({name for worker in same for name in worker.types}),
        sorted({name for worker in same for name in worker.queues}),
        max(worker.slots for worker in same),
        sum(worker.running for worker in same),
        any(worker.is_draining for worker in same),
        any(worker.is_streaming for worker in same),
        min(worker.heard_ms_ago for worker in same),
    )


def stats(answers: Sequence[Stats], all_workers: Sequence[WorkerView]) -> Stats:
    """Returns the sums over all nodes; position and epoch are 0, because each node has its own."""
    states: Counter[str] = Counter()
    for answer in answers:
        states.update(answer.states)
    return Stats(
        position=0,
        now_ms=max(answer.now_ms for answer in answers),
        states={name: states[name] for name in answers[0].states},
        bytes_held=sum(answer.bytes_held for answer in answers),
        epoch=0,
        cluster_id=",".join(answer.cluster_id for answer in answers),
        workers=len(all_workers),
        slots=sum(worker.slots for worker in all_workers),
        leases=sum(answer.leases for answer in answers),
        bytes_held_max=sum(answer.bytes_held_max for answer in answers),
        warnings=tuple(f"node {answer.node_index}: {text}" for answer in answers for text in answer.warnings),
    )
