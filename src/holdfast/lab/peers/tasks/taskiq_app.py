"""`taskiq worker holdfast.lab.peers.tasks.taskiq_app:broker`."""

from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

from holdfast.lab.peers import place, work

broker = RedisStreamBroker(place.redis_url()).with_result_backend(RedisAsyncResultBackend(place.redis_url(1)))


@broker.task
async def nothing() -> int:
    """The no-op."""
    return work.nothing()


pause = broker.task(work.pause_async)
