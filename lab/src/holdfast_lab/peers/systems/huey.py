"""Huey on Redis, with its defaults and tuned for latency."""

import sys
from importlib.metadata import version
from types import ModuleType

from holdfast_lab.peers.stores import REDIS
from holdfast_lab.peers.system import SystemDescription
from holdfast_lab.peers.tasks import huey_app, huey_tuned_app

_SETTINGS = "no prefetch, no call for many: `task.map` sends one by one, results in a hash of the same Redis"
_POLL_S = 0.001


class Huey:
    """Tasks in `huey_consumer`; callers poll for results."""

    about = SystemDescription(
        title="Huey",
        version=version("huey"),
        settings=f"`huey_consumer --workers 8 --worker-type thread`, {_SETTINGS}, `Result.get(blocking=True)` polling "
        "every ms (default: 100 and more)",
        durability=REDIS.durability,
        after_a_kill="popped before they run: running jobs are lost",
    )
    _app: ModuleType = huey_app
    _options: tuple[str, ...] = ()

    def worker_command(self) -> list[str]:
        options = ["--workers=8", "--worker-type=thread", "--quiet", *self._options]
        return [sys.executable, "-m", "huey.bin.huey_consumer", f"{self._app.__name__}.huey", *options]

    def enqueue_many(self, count: int) -> None:
        self._app.nothing.map([()] * count)

    def submit_each(self, count: int) -> None:
        for _ in range(count):
            self._app.nothing()

    def enqueue_pauses(self, indexes: range, seconds: float) -> None:
        self._app.pause.map([(index, seconds) for index in indexes])

    def submit_and_wait(self) -> None:
        self._app.nothing().get(blocking=True, timeout=60, backoff=1, max_delay=_POLL_S)

    def count_done(self) -> int:
        return int(self._app.huey.result_count())

    def count_kept(self) -> int:
        return int(self._app.huey.pending_count())

    def close(self) -> None:
        self._app.huey.storage.conn.close()


class HueyTuned(Huey):
    """The same, for latency: callers are notified, see `tasks.huey_tuned_app`."""

    about = SystemDescription(
        title="Huey, tuned",
        version=version("huey"),
        settings="`huey_consumer --workers 8 --worker-type thread --no-periodic --scheduler-interval 60`, "
        f"{_SETTINGS}, `notify_result=True` so that `Result.get(blocking=True)` does not poll",
        durability=Huey.about.durability,
        after_a_kill=Huey.about.after_a_kill,
    )
    _app = huey_tuned_app
    # No job is periodic or scheduled: the scheduler need not wake up every second beside the workers.
    _options = ("--no-periodic", "--scheduler-interval=60")
