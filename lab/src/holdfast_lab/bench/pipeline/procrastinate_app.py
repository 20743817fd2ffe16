"""Procrastinate's job, as its documentation shows it: an asynchronous task over a pool of psycopg."""

from procrastinate import App, PsycopgConnector

from holdfast_lab.bench.pipeline import environment

app = App(connector=PsycopgConnector(conninfo=environment.database(), min_size=4, max_size=environment.pool()))


@app.task(name="noop")
async def noop(argument: str) -> None:
    """Do nothing, so that only the queue is measured."""
