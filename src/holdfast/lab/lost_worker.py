"""Submits one-second jobs, kills a worker in the middle, waits for all of them: prints one line of JSON.

Run as `python -m holdfast.lab.lost_worker COUNT PID` with the app's url in the environment.
"""

import json
import os
import signal
import sys
import time

from holdfast.lab.noop_app import app, one_second

_LOOK_S = 0.01
_PATIENCE_S = 60


def main(count: int, victim: int) -> None:
    """The clock runs from the kill on; what had ended before it counts as a part of the work that was done."""
    jobs = one_second.submit_many([(number,) for number in range(count)])
    while app.stats().leases < 2:  # noqa: PLR2004 - both workers are at it, or about to be
        time.sleep(_LOOK_S)
    start = time.perf_counter()
    os.kill(victim, signal.SIGKILL)
    done = 0
    for number, job in enumerate(jobs):
        done += job.result(timeout_s=_PATIENCE_S) == number
    print(json.dumps({"seconds": time.perf_counter() - start, "done": done}))
    app.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
