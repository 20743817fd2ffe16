"""`celery --app holdfast_lab.peers.tasks.celery_app worker`."""

from celery import Celery

from holdfast_lab.peers import trial_environment, work

app = Celery("lab", broker=trial_environment.redis_url(), backend=trial_environment.redis_url(1))
nothing = app.task(work.nothing)
pause = app.task(work.pause)
