"""`procrastinate --app=holdfast_lab.peers.tasks.procrastinate_app.app worker`, over a pool of connections."""

from procrastinate import App, PsycopgConnector

from holdfast_lab.peers import trial_environment, work

CONNECTIONS_MAX = 20

app = App(connector=PsycopgConnector(conninfo=trial_environment.store_address(), min_size=4, max_size=CONNECTIONS_MAX))
nothing = app.task(name="nothing")(work.nothing_async)
pause = app.task(name="pause")(work.pause_async)
