"""What a reader must know of the machine and of the day."""

import datetime as dt
import os
import platform
from importlib.metadata import version
from pathlib import Path

from holdfast import __version__


def facts(command: str) -> dict[str, str]:
    """Date, machine and versions, as they are printed."""
    return {
        "command": command,
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} cores ({_processor()}), {_memory()}, {platform.system()}",
        "versions": f"Python {platform.python_version()}, grpcio {version('grpcio')}, Holdfast {__version__}",
        "load of the machine before": f"{os.getloadavg()[0]:.2f} in the last minute",
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def _memory() -> str:
    return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / (1 << 30):.0f} GiB"
