"""`huey_consumer holdfast.lab.peers.tasks.huey_app.huey`."""

from huey import RedisHuey

from holdfast.lab.peers import place, work

huey = RedisHuey("lab", url=place.redis_url(), notify_result=True)
nothing = huey.task()(work.nothing)
pause = huey.task()(work.pause)
