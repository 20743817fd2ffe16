"""The app that processes of the SDK's tests share; the directory is named by the environment."""

import os
import sys
import time
from pathlib import Path

from holdfast import Holdfast, current

app = Holdfast(os.environ["SDK_JOBS"], settings={"lease_ms": int(os.environ["SDK_LEASE_MS"]), "heartbeat_ms": 200})


@app.job(max_losses=100)
def double(number: int) -> int:
    """Takes a moment, so that some of them run whenever somebody is killed."""
    time.sleep(0.005)
    return 2 * number


@app.job(max_attempts=2)
def pid() -> int:
    """Which process runs it."""
    return os.getpid()


@app.job(max_losses=100)
def gate(path: str) -> int:
    """Says that it runs, and does so until the file is there."""
    Path(f"{path}.begun").touch()
    while not Path(path).exists():
        current().raise_if_canceled()
        time.sleep(0.01)
    return current().attempt


if __name__ == "__main__":
    what = sys.argv[1]
    if what == "work":
        app.worker(slots=4).run()
    elif what == "serve":
        app.stats()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.read()
    elif what == "submit":
        sys.stdout.write(f"{double.submit(int(sys.argv[2])).id}\n")
