"""`celery --app holdfast.lab.peers.tasks.celery_app worker`."""

from celery import Celery

from holdfast.lab.peers import place, work

app = Celery("lab", broker=place.redis_url(), backend=place.redis_url(1))
nothing = app.task(work.nothing)
pause = app.task(work.pause)
