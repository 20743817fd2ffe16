"""The configuration of one worker."""

import msgspec

from holdfast.process.memory import physical_bytes
from holdfast.worker.handlers import Mode


def half_of_memory() -> int:
    """The default memory limit of a child process, low enough that one child cannot exhaust the machine."""
    return physical_bytes() // 2


class WorkerConfig(msgspec.Struct, frozen=True):
    """The identity, the capacity and the limits of a worker."""

    worker_id: str
    slots: int = 8
    queues: frozenset[str] = frozenset()
    #: Names of the schedules that the app declares. If there are any, the worker refuses a backend without schedules.
    schedules: tuple[str, ...] = ()
    #: How long a stop waits for running jobs before it hands them back.
    drain_ms: int = 30_000
    #: "module:attribute" of the app; child processes import it to run jobs.
    app_path: str = ""
    #: Overrides the mode of all handlers that are ordinary functions; None: each handler's own mode.
    isolation: Mode | None = None
    #: Whether this process may be replaced by a fresh one; a worker that is embedded in a program continues instead.
    is_replaceable: bool = False
    #: Replace a process after it has run this many jobs; 0: never.
    max_jobs: int = 0
    #: Replace a process whose resident memory exceeds this; 0: never.
    max_memory_bytes: int = 0
    #: Memory limit of a child process; 0: no limit.
    child_memory_bytes: int = msgspec.field(default_factory=half_of_memory)
    #: Grace period for an interrupted job to end.
    kill_grace_ms: int = 2_000
    #: Whether this process ends with the server's process; a restarted server need not wait for its leases to expire.
    dies_with_server: bool = False
