"""Huey on Redis."""

import sys
from importlib.metadata import version

from holdfast_lab.peers.redis_server import DURABILITY
from holdfast_lab.peers.system import About
from holdfast_lab.peers.tasks import huey_app


class Huey:
    """Tasks in `huey_consumer`, results in a hash of the same Redis."""

    about = About(
        title="Huey",
        version=version("huey"),
        settings="`huey_consumer --workers 8 --worker-type thread`, no prefetch, no call for many: `task.map` sends "
        "one by one, `notify_result=True` so that `Result.get(blocking=True)` does not poll",
        durability=DURABILITY,
        after_a_kill="popped before they run: running jobs are lost",
    )

    def worker_command(self) -> list[str]:
        app = "holdfast_lab.peers.tasks.huey_app.huey"
        return [sys.executable, "-m", "huey.bin.huey_consumer", app, "--workers=8", "--worker-type=thread", "--quiet"]

    def enqueue_many(self, count: int) -> None:
        huey_app.nothing.map([()] * count)

    def enqueue_pauses(self, indexes: range, seconds: float) -> None:
        huey_app.pause.map([(index, seconds) for index in indexes])

    def submit_and_wait(self) -> None:
        huey_app.nothing().get(blocking=True, timeout=60)

    def count_done(self) -> int:
        return int(huey_app.huey.result_count())

    def count_kept(self) -> int:
        return int(huey_app.huey.pending_count())

    def close(self) -> None:
        huey_app.huey.storage.conn.close()
