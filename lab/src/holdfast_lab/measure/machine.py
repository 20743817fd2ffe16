"""Description of the machine and the versions that a measurement ran with."""

import datetime as dt
import os
import platform
import subprocess
import tempfile
from importlib.metadata import version
from pathlib import Path

from holdfast import __version__


def facts(command: str, *more_versions: str) -> dict[str, str]:
    """Command, date, machine, versions and load, as a report prints them."""
    versions = (f"Python {platform.python_version()}", f"grpcio {version('grpcio')}", f"Holdfast {__version__}")
    return {
        "command": command,
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} cores ({_processor()}), {_memory()}, {_file_system()}, {platform.system()}",
        "versions": ", ".join([*versions, *more_versions]),
        "load": f"{os.getloadavg()[0]:.2f} in the minute before the run",
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def _memory() -> str:
    return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / (1 << 30):.0f} GiB"


def _file_system() -> str:
    """File system of the temporary folder, where the stores are: a sync on tmpfs costs nothing."""
    command = ["findmnt", "--noheadings", "--output", "FSTYPE", "--target", tempfile.gettempdir()]
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout.strip() or "unknown file system"
