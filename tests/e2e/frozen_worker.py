"""A worker of the bare frozen contract, as a process: fetches one job, works until a file is there, reports it.

Prints the job's id once it has it, and whether the report was accepted at the end.
"""

import sys
from pathlib import Path

from tests.e2e.waiting import eventually
from tests.e2e.wire import Wire


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(target: str, worker_id: str, file: Path) -> None:
    wire = Wire(target)
    work = wire.fetch(worker_id)
    say(work.job_id)
    eventually(file.exists)
    say(str(wire.report(worker_id, work.job_id, token=work.token, output_bytes=b"late")))
    wire.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
