"""Our side's job, as a user would write it."""

from holdfast import Holdfast
from holdfast.lab.pipeline import place

app = Holdfast(place.gateway())


@app.job
async def noop(argument: str) -> None:
    """Does nothing, so that all that is measured is the queue."""
