"""`huey_consumer holdfast_lab.peers.tasks.huey_app.huey`: Huey with its defaults."""

from huey import RedisHuey

from holdfast_lab.peers import trial_environment, work

huey = RedisHuey("lab", url=trial_environment.redis_url())
nothing = huey.task()(work.nothing)
pause = huey.task()(work.pause)
