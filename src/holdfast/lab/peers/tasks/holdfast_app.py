"""`holdfast worker -A holdfast.lab.peers.tasks.holdfast_app:app`."""

from holdfast import Holdfast
from holdfast.lab.peers import place, work

app = Holdfast(place.holdfast_url())
nothing = app.job()(work.nothing)
pause = app.job()(work.pause)
