"""`saq holdfast_lab.peers.tasks.saq_app.settings`."""

from typing import Any

from saq import Queue

from holdfast_lab.peers import trial_environment, work

queue = Queue.from_url(trial_environment.redis_url())


async def nothing(_context: Any) -> int:  # noqa: ANN401 - the shape that SAQ wants
    """The no-op."""
    return work.nothing()


async def pause(_context: Any, *, index: int, seconds: float) -> int:  # noqa: ANN401
    """The job that takes time."""
    return await work.pause_async(index, seconds)


settings = {"queue": queue, "functions": [nothing, pause]}
