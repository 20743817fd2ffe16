"""`huey_consumer holdfast_lab.peers.tasks.huey_tuned_app.huey`: Huey tuned for low latency.

- `notify_result`: the consumer also pushes into a list of the job when its result is stored, and the caller waits for
  that with BLPOP. By default the caller polls. The push costs two more commands for each job, so throughput falls.
- `blocking` is the default: an idle worker thread waits in BRPOP. The consumer's polling delay (`--delay`,
  `--max-delay`, `--backoff`) then applies to nothing but errors of Redis, so it is left alone.
"""

from huey import RedisHuey

from holdfast_lab.peers import trial_environment, work

huey = RedisHuey("lab", url=trial_environment.redis_url(), blocking=True, notify_result=True)
nothing = huey.task()(work.nothing)
pause = huey.task()(work.pause)
