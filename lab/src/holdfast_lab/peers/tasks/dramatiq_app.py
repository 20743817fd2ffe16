"""`dramatiq holdfast_lab.peers.tasks.dramatiq_app`."""

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends.redis import RedisBackend

from holdfast_lab.peers import trial_environment, work

broker = RedisBroker(url=trial_environment.redis_url())
broker.add_middleware(Results(backend=RedisBackend(url=trial_environment.redis_url(1))))
dramatiq.set_broker(broker)
nothing = dramatiq.actor(work.nothing, store_results=True)
pause = dramatiq.actor(work.pause)
