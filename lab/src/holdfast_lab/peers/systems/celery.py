"""Celery on Redis."""

import sys
from importlib.metadata import version
from itertools import count

from celery import group
from redis import Redis

from holdfast_lab.peers import trial_environment
from holdfast_lab.peers.stores import REDIS
from holdfast_lab.peers.system import SystemDescription
from holdfast_lab.peers.tasks import celery_app


class Celery:
    """Tasks in `celery worker`, results in a second database of the same Redis."""

    about = SystemDescription(
        title="Celery",
        version=version("celery"),
        settings="`celery worker --pool=threads --concurrency=8`, prefetch 4 per thread (default), bulk by `group`, "
        "results in Redis, `AsyncResult.get()`",
        durability=REDIS.durability,
        after_a_kill="acknowledged before they run (default): running jobs are lost; prefetched ones are redelivered "
        "after `visibility_timeout`, 1 h",
    )

    def __init__(self) -> None:
        self._workers = count(1)
        self._broker = Redis.from_url(trial_environment.redis_url())
        self._results = Redis.from_url(trial_environment.redis_url(1))

    def worker_command(self) -> list[str]:
        app = "holdfast_lab.peers.tasks.celery_app"
        options = [
            "--pool=threads",
            "--concurrency=8",
            "--loglevel=WARNING",
            f"--hostname=lab-{next(self._workers)}@%h",
        ]
        return [sys.executable, "-m", "celery", "--app", app, "worker", *options]

    def enqueue_many(self, count: int) -> None:
        group(celery_app.nothing.s() for _ in range(count)).apply_async()

    def submit_each(self, count: int) -> None:
        for _ in range(count):
            celery_app.nothing.delay()

    def enqueue_pauses(self, indexes: range, seconds: float) -> None:
        group(celery_app.pause.s(index, seconds) for index in indexes).apply_async()

    def submit_and_wait(self) -> None:
        celery_app.nothing.delay().get(timeout=60)

    def count_done(self) -> int:
        return int(self._results.dbsize())

    def count_kept(self) -> int:
        return int(self._broker.llen("celery")) + int(self._broker.hlen("unacked"))

    def close(self) -> None:
        celery_app.app.close()
        self._broker.close()
        self._results.close()
