"""Workers of the app with the misbehaving handlers, and jobs for them."""

from pathlib import Path

from holdfast.proto import holdfast_pb2 as own
from tests.e2e.fleet import Fleet, Program
from tests.e2e.waiting import eventually
from tests.e2e.wire import Wire

ROOT = str(Path(__file__).resolve().parents[2])
APP = "tests.e2e.jobs_app:app"


def app_worker(fleet: Fleet, wire: Wire, *arguments: str) -> Program:
    """A worker of the app that is ready."""
    program = fleet.start("worker", "--connect", wire.target, "-A", APP, *arguments, PYTHONPATH=ROOT)
    program.ready()
    return program


def submit(
    wire: Wire, job_type: str, file: Path | str = "", *, timeout_ms: int = 0, max_attempts: int = 1, count: int = 1
) -> list[str]:
    """The ids of new jobs, all alike."""
    template = own.JobTemplate(type=job_type, timeout_ms=timeout_ms, max_attempts=max_attempts)
    jobs = [own.NewJob(payload=str(file).encode()) for _ in range(count)]
    return list(wire.batch(own.SubmitJobsRequest(templates=[template], jobs=jobs)).job_ids)


def one(wire: Wire, job_type: str, file: Path | str = "", *, timeout_ms: int = 0, max_attempts: int = 1) -> str:
    """The id of a new job."""
    return submit(wire, job_type, file, timeout_ms=timeout_ms, max_attempts=max_attempts)[0]


def pid_in(file: Path) -> int:
    """The process that a job says it runs in, once it does."""
    eventually(file.exists, what=f"a job that writes {file.name}")
    return int(file.read_text())


def is_gone(pid: int) -> bool:
    """Whether there is no such process, or only what is left of it."""
    try:
        return " Z " in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
