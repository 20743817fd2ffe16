"""The test app of the dashboard: quick, slow and failing jobs, and one that logs its argument."""

import random
import time
from pathlib import Path

from holdfast import Backoff, Holdfast, current

app = Holdfast("memory://")


@app.job
def resize_image(name: str = "", width: int = 0, pause_s: float = 0.0) -> dict[str, object]:
    """Sleeps for `pause_s`."""
    time.sleep(pause_s)
    return {"name": name, "width": width, "bytes": 48_213}


@app.job(max_attempts=1)
def send_mail(to: str = "", server: str = "mail.example") -> None:
    """Always fails."""
    raise ConnectionError(f"{server} refused {to!r}")


@app.job(max_attempts=1)
def charge_card(order: int = 0) -> None:
    """Fails in one of several ways."""
    raise random.Random(order).choice([TimeoutError("the bank did not answer within 30 s"), ValueError("card expired")])


@app.job(max_attempts=3, backoff=Backoff.fixed(0))
def flaky(fails: int = 1) -> str:
    """Fails the given number of times first."""
    current().log(f"attempt {current().attempt}")
    if current().attempt <= fails:
        raise ValueError(f"attempt {current().attempt} went wrong")
    return "at last"


@app.job
def gate(path: str, line: str = "") -> str:
    """Logs a line, reports progress, and runs until the file exists or the job is canceled."""
    current().progress(0.4, "waiting for the file")
    if line:
        current().log(line)
    while not Path(path).exists():
        current().raise_if_canceled()
        time.sleep(0.01)
    return "the file came"


@app.job(max_attempts=1)
def shout(words: str) -> None:
    """Fails with exactly these words, and logs them."""
    current().log(words)
    raise RuntimeError(words)
