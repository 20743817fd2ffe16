"""The other side's job, as its documentation has it: an asynchronous task over a pool of psycopg."""

from procrastinate import App, PsycopgConnector

from holdfast.lab.pipeline import place

app = App(connector=PsycopgConnector(conninfo=place.database(), min_size=4, max_size=place.pool()))


@app.task(name="noop")
async def noop(argument: str) -> None:
    """Does nothing, so that all that is measured is the queue."""
