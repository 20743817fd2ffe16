"""Starts workers of the app with misbehaving handlers, and submits jobs for them."""

from pathlib import Path

from holdfast.proto import holdfast_pb2 as own
from tests.e2e.fleet import Fleet, Program
from tests.e2e.grpc_client import Wire
from tests.e2e.wait_until import eventually

ROOT = str(Path(__file__).resolve().parents[2])
APP = "tests.e2e.jobs_app:app"


def app_worker(fleet: Fleet, wire: Wire, *arguments: str) -> Program:
    """Starts a worker of the app and waits until it is ready."""
    program = fleet.start("worker", "--connect", wire.target, "-A", APP, *arguments, PYTHONPATH=ROOT)
    program.ready()
    return program


def submit(
    wire: Wire, job_type: str, file: Path | str = "", *, timeout_ms: int = 0, max_attempts: int = 1, count: int = 1
) -> list[str]:
    """Submits `count` identical jobs and returns their ids."""
    template = own.JobTemplate(type=job_type, timeout_ms=timeout_ms, max_attempts=max_attempts)
    jobs = [own.NewJob(payload=str(file).encode()) for _ in range(count)]
    return list(wire.batch(own.SubmitJobsRequest(templates=[template], jobs=jobs)).job_ids)


def one(wire: Wire, job_type: str, file: Path | str = "", *, timeout_ms: int = 0, max_attempts: int = 1) -> str:
    """Submits one job and returns its id."""
    return submit(wire, job_type, file, timeout_ms=timeout_ms, max_attempts=max_attempts)[0]


def pid_in(file: Path) -> int:
    """Waits until the job has written its pid into the file, and returns the pid."""
    eventually(file.exists, what=f"a job that writes {file.name}")
    return int(file.read_text())


def is_gone(pid: int) -> bool:
    """Whether the process has ended; a zombie counts as ended."""
    try:
        return " Z " in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
