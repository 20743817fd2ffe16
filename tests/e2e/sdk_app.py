"""The app of the SDK's tests; the environment variable SDK_JOBS names its directory."""

import os
import sys
import time
from pathlib import Path

from holdfast import Holdfast, current

app = Holdfast(os.environ["SDK_JOBS"], settings={"lease_ms": int(os.environ["SDK_LEASE_MS"]), "heartbeat_ms": 200})


@app.job(max_losses=100)
def double(number: int) -> int:
    """Takes 5 ms, so that some of these jobs run at the moment of a kill."""
    time.sleep(0.005)
    return 2 * number


@app.job(max_attempts=2)
def pid() -> int:
    """Returns the pid of the process that runs the job."""
    return os.getpid()


@app.job(max_losses=100)
def gate(path: str) -> int:
    """Creates a `.begun` file, and runs until the file at the path exists."""
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
