"""Dramatiq on Redis."""

import sys
from importlib.metadata import version

from redis import Redis

from holdfast_lab.peers import trial_environment
from holdfast_lab.peers.stores import REDIS
from holdfast_lab.peers.system import SystemDescription
from holdfast_lab.peers.tasks import dramatiq_app


class Dramatiq:
    """Actors in `dramatiq`, results in a second database of the same Redis."""

    about = SystemDescription(
        title="Dramatiq",
        version=version("dramatiq"),
        settings="`dramatiq --processes 1 --threads 8`, prefetch 2 per thread (default), no call for many: a loop of "
        "`send`, results by the `Results` middleware, `get_result(block=True)`",
        durability=REDIS.durability,
        after_a_kill="acknowledged after they ran; requeued when the worker has sent no heartbeat for 60 s and a "
        "command runs maintenance (1 in 1,000)",
    )

    def __init__(self) -> None:
        self._broker = Redis.from_url(trial_environment.redis_url())
        self._results = Redis.from_url(trial_environment.redis_url(1))

    def worker_command(self) -> list[str]:
        app = "holdfast_lab.peers.tasks.dramatiq_app"
        return [sys.executable, "-m", "dramatiq", app, "--processes", "1", "--threads", "8"]

    def enqueue_many(self, count: int) -> None:
        self.submit_each(count)

    def submit_each(self, count: int) -> None:
        for _ in range(count):
            dramatiq_app.nothing.send()

    def enqueue_pauses(self, indexes: range, seconds: float) -> None:
        for index in indexes:
            dramatiq_app.pause.send(index, seconds)

    def submit_and_wait(self) -> None:
        dramatiq_app.nothing.send().get_result(block=True, timeout=60_000)

    def count_done(self) -> int:
        return int(self._results.dbsize())

    def count_kept(self) -> int:
        return int(self._broker.hlen("dramatiq:default.msgs"))

    def close(self) -> None:
        dramatiq_app.broker.close()
        self._broker.close()
        self._results.close()
