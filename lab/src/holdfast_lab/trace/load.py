"""The client of a trace: lone submits and lone jobs, one after the other, with probes.

`python -m holdfast_lab.trace.load KIND COUNT FILE` prints the intervals of the calls as JSON.
"""

import json
import sys
import time
from pathlib import Path

from holdfast_lab.trace.probes import EMBEDDED, ROLES, SERVER, Recorder

_WARM = 200


def main() -> None:
    """Make the calls, and print when each began and ended, in nanoseconds of the monotonic clock."""
    kind, count, path = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    recorder = Recorder((*EMBEDDED, *SERVER) if kind.startswith("embedded") else ROLES["client"])
    from holdfast_lab.bench.noop_app import app, noop  # noqa: PLC0415 - after the probes were installed

    def submit() -> None:
        noop.submit("x")

    def job() -> None:
        noop.submit("x").result(timeout_s=30)

    call = job if kind.endswith("job") else submit
    for _ in range(_WARM):
        call()
    intervals = []
    for _ in range(count):
        begun = time.monotonic_ns()
        call()
        intervals.append((begun, time.monotonic_ns()))
    app.close()
    recorder.write(path)
    print(json.dumps(intervals))


if __name__ == "__main__":
    main()
