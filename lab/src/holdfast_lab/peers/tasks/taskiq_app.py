"""`taskiq worker holdfast_lab.peers.tasks.taskiq_app:broker`."""

from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

from holdfast_lab.peers import trial_environment, work

broker = RedisStreamBroker(trial_environment.redis_url()).with_result_backend(
    RedisAsyncResultBackend(trial_environment.redis_url(1))
)


@broker.task
async def nothing() -> int:
    """The no-op."""
    return work.nothing()


pause = broker.task(work.pause_async)
