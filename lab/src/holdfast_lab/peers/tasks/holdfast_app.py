"""`holdfast worker -A holdfast_lab.peers.tasks.holdfast_app:app`."""

from holdfast import Holdfast
from holdfast_lab.peers import trial_environment, work

app = Holdfast(trial_environment.holdfast_url())
nothing = app.job()(work.nothing)
nothing_async = app.job()(work.nothing_async)
pause = app.job()(work.pause)
