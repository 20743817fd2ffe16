"""The taskiq library with taskiq-redis."""

import asyncio
import sys
from importlib.metadata import version
from typing import Any

from redis import Redis

from holdfast_lab.measure.timing import in_lanes
from holdfast_lab.peers import trial_environment
from holdfast_lab.peers.stores import REDIS
from holdfast_lab.peers.system import SystemDescription
from holdfast_lab.peers.tasks import taskiq_app

#: Calls in progress: each holds a connection.
_LANES = 20
_CHECK_S = 0.001


class Taskiq:
    """Coroutines in `taskiq worker`, over the stream broker, which acknowledges."""

    about = SystemDescription(
        title="taskiq",
        version=f"{version('taskiq')} (taskiq-redis {version('taskiq-redis')})",
        settings="`taskiq worker --workers 1`, 100 at a time (default), coroutines, `RedisStreamBroker` reading 100 at "
        f"once (default), no call for many: {_LANES} `kiq` at a time, `wait_result` polling every ms (default: 200)",
        durability=REDIS.durability,
        after_a_kill="acknowledged after the result is stored; claimed by another worker after 10 min (`idle_timeout`)",
    )

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._broker = Redis.from_url(trial_environment.redis_url())
        self._results = Redis.from_url(trial_environment.redis_url(1))
        self._runner.run(taskiq_app.broker.startup())

    def worker_command(self) -> list[str]:
        app = "holdfast_lab.peers.tasks.taskiq_app:broker"
        return [sys.executable, "-m", "taskiq", "worker", app, "--workers", "1", "--log-level", "WARNING"]

    def enqueue_many(self, count: int) -> None:
        self._runner.run(in_lanes([taskiq_app.nothing.kiq() for _ in range(count)], _LANES))

    def submit_each(self, count: int) -> None:
        self._runner.run(_submit_each(count))

    def enqueue_pauses(self, indexes: range, seconds: float) -> None:
        self._runner.run(in_lanes([taskiq_app.pause.kiq(index, seconds) for index in indexes], _LANES))

    def submit_and_wait(self) -> None:
        self._runner.run(_submit_and_wait())

    def count_done(self) -> int:
        return int(self._results.dbsize())

    def count_kept(self) -> int:
        group: Any = self._broker.xinfo_groups("taskiq")[0]
        return int(group["pending"]) + int(group["lag"] or 0)

    def close(self) -> None:
        self._runner.run(taskiq_app.broker.shutdown())
        self._runner.close()
        self._broker.close()
        self._results.close()


async def _submit_each(count: int) -> None:
    for _ in range(count):
        await taskiq_app.nothing.kiq()


async def _submit_and_wait() -> None:
    job = await taskiq_app.nothing.kiq()
    result = await job.wait_result(check_interval=_CHECK_S, timeout=60)
    result.raise_for_error()
