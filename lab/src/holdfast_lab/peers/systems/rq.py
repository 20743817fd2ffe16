"""RQ on Redis, with its default worker and with the one that does not fork for each job."""

import sys
from importlib.metadata import version

from redis import Redis
from rq import Queue

from holdfast.errors import DeadlineExceededError
from holdfast_lab.peers import trial_environment, work
from holdfast_lab.peers.stores import REDIS
from holdfast_lab.peers.system import SystemDescription

_SETTINGS = (
    "one job at a time, no prefetch, bulk by `Queue.enqueue_many`, results in streams of the same Redis, "
    "`latest_result(timeout=…)`"
)


class Rq:
    """Functions in `rq worker`."""

    about = SystemDescription(
        title="RQ",
        version=version("rq"),
        settings=f"`rq worker` (a fork for each job), {_SETTINGS}",
        durability=REDIS.durability,
        after_a_kill="declared abandoned after 90 s, at the next maintenance (every 10 min), and moved to the failed "
        "registry; run again only if the job has a `Retry`",
    )
    _options: tuple[str, ...] = ()

    def __init__(self) -> None:
        self._redis = Redis.from_url(trial_environment.redis_url())
        self._queue = Queue("lab", connection=self._redis)

    def worker_command(self) -> list[str]:
        options = ["--url", trial_environment.redis_url(), "--quiet", *self._options]
        return [sys.executable, "-m", "rq.cli", "worker", *options, "lab"]

    def enqueue_many(self, count: int) -> None:
        self._queue.enqueue_many([Queue.prepare_data(work.nothing) for _ in range(count)])

    def submit_each(self, count: int) -> None:
        for _ in range(count):
            self._queue.enqueue(work.nothing)

    def enqueue_pauses(self, indexes: range, seconds: float) -> None:
        self._queue.enqueue_many([Queue.prepare_data(work.pause, args=(index, seconds)) for index in indexes])

    def submit_and_wait(self) -> None:
        if self._queue.enqueue(work.nothing).latest_result(timeout=60) is None:
            raise DeadlineExceededError("no result after 60 s")

    def count_done(self) -> int:
        return int(self._queue.finished_job_registry.get_job_count(cleanup=False))

    def count_kept(self) -> int:
        registries = (self._queue.started_job_registry, self._queue.failed_job_registry)
        waiting = self._queue.count + int(self._redis.llen(self._queue.intermediate_queue_key))
        return int(waiting) + sum(int(registry.get_job_count(cleanup=False)) for registry in registries)

    def close(self) -> None:
        self._redis.close()


class RqSimple(Rq):
    """Functions in `rq worker` without a fork for each job."""

    about = SystemDescription(
        title="RQ, SimpleWorker",
        version=version("rq"),
        settings=f"`rq worker --worker-class rq.SimpleWorker` (no forks), {_SETTINGS}",
        durability=Rq.about.durability,
        after_a_kill=Rq.about.after_a_kill,
    )
    _options = ("--worker-class", "rq.SimpleWorker")
