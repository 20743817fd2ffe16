"""What one worker is told about itself."""

import msgspec

from holdfast.process.memory import physical_bytes
from holdfast.worker.handlers import Mode


def half_of_memory() -> int:
    """The most that one child may allocate unless somebody says otherwise: the machine survives it."""
    return physical_bytes() // 2


class WorkerConfig(msgspec.Struct, frozen=True):
    """Who this worker is and how much it does at a time."""

    worker_id: str
    slots: int = 8
    queues: frozenset[str] = frozenset()
    #: Names of the schedules that its app declares; a backend without schedules is refused.
    schedules: tuple[str, ...] = ()
    #: How long a stop waits for running jobs before it hands them back.
    drain_ms: int = 30_000
    #: "module:attribute" of the app; children that run jobs import it.
    app_path: str = ""
    #: Where jobs of ordinary functions run, whatever their handlers say; None: as they say.
    isolation: Mode | None = None
    #: Whether this process may be replaced by a fresh one; a worker inside somebody's program goes on instead.
    is_replaceable: bool = False
    #: A process that has run so many jobs is replaced by a fresh one; 0: never.
    max_jobs: int = 0
    #: A process whose resident memory is above this is replaced by a fresh one; 0: never.
    max_memory_bytes: int = 0
    #: What one child may allocate at most; 0: as much as there is.
    child_memory_bytes: int = msgspec.field(default_factory=half_of_memory)
    #: How long a job that was told to end may take to do so.
    kill_grace_ms: int = 2_000
    #: Whether this process ends whenever the server's does, so that its leases need not wait for it after a restart.
    dies_with_server: bool = False
