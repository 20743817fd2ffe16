"""What a reader must know of the machine and of the day."""

import datetime as dt
import os
import platform
import subprocess
import tempfile
from importlib.metadata import version
from pathlib import Path

from holdfast import __version__
from holdfast.lab.peers import redis_server


def facts(command: str, *, with_redis: bool) -> dict[str, str]:
    """Date, machine and versions, as they are printed."""
    told = {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} cores ({_processor()}), {_memory()}, {_file_system()}, {platform.system()}",
        "versions": f"Python {platform.python_version()}, grpcio {version('grpcio')}, Holdfast {__version__}",
        "load": f"{os.getloadavg()[0]:.2f} in the minute before the run",
        "command": command,
    }
    if with_redis:
        told["versions"] += f", Redis {redis_server.version()}, redis-py {version('redis')}"
    return told


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def _memory() -> str:
    return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / (1 << 30):.0f} GiB"


def _file_system() -> str:
    """Of the folder in which stores are put: a sync in memory costs nothing."""
    command = ["findmnt", "--noheadings", "--output", "FSTYPE", "--target", tempfile.gettempdir()]
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout.strip() or "unknown file system"
