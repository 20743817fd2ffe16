"""The jobs that the bench runs, as a user would write them; where they are kept comes from the environment."""

import os
import time

from holdfast import Holdfast

#: Names the app's url to the processes of a measurement.
URL_VARIABLE = "BENCH_URL"

app = Holdfast(os.environ.get(URL_VARIABLE, "memory://"))


@app.job
def noop(argument: str) -> None:
    """Does nothing, so that all that is measured is the queue."""


@app.job
def one_second(number: int) -> int:
    """Takes a second."""
    time.sleep(1)
    return number
