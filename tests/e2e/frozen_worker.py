"""A worker process of the plain frozen contract: fetches one job, waits for a file, reports success.

Prints the job id after the fetch, and after the report whether it was accepted.
"""

import sys
from pathlib import Path

from tests.e2e.grpc_client import Wire
from tests.e2e.wait_until import eventually


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
