"""The jobs of the bench, as a user would write them; the URL of the app comes from the environment."""

import os
import time

from holdfast import Holdfast
from holdfast_lab.measure.processes import URL_VARIABLE

app = Holdfast(os.environ.get(URL_VARIABLE, "memory://"))


@app.job
def noop(argument: str) -> None:
    """Do nothing, so that only the queue is measured."""


@app.job
def one_second(number: int) -> int:
    """Take a second."""
    time.sleep(1)
    return number
