"""`dramatiq holdfast.lab.peers.tasks.dramatiq_app`."""

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends.redis import RedisBackend

from holdfast.lab.peers import place, work

broker = RedisBroker(url=place.redis_url())
broker.add_middleware(Results(backend=RedisBackend(url=place.redis_url(1))))
dramatiq.set_broker(broker)
nothing = dramatiq.actor(work.nothing, store_results=True)
pause = dramatiq.actor(work.pause)
