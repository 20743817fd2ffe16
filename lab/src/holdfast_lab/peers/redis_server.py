"""A private Redis for one trial, on a reserved port and in a folder of its own."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.errors import UnavailableError
from holdfast_lab.measure.processes import child
from holdfast_lab.measure.reserved_ports import Ports

#: Arguments of redis-server beside port and folder, by mode.
MODES = {
    "default": [],  # without a configuration: RDB snapshots now and then, no append-only file
    "always": ["--appendonly", "yes", "--appendfsync", "always"],
}
DURABILITY = (
    "Redis' own: by default a job is in memory until the next snapshot, 1 to 60 min later; with `appendfsync always` "
    "it is synced before the submit returns"
)
INSTALL = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", "redis-server"]
_START_S = 10


def ensure_installed() -> None:
    """Install redis-server if possible; otherwise the error says how."""
    if shutil.which("redis-server"):
        return
    if os.geteuid() == 0 and shutil.which("apt-get"):
        # With run level 1 Debian does not start a Redis of its own on the well-known port.
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
        subprocess.run(INSTALL, check=False, env=environment, stdout=subprocess.DEVNULL)
    if not shutil.which("redis-server"):
        raise UnavailableError(f"redis-server is missing; install it with: sudo {' '.join(INSTALL)}")


@contextmanager
def redis_server(folder: Path, mode: str) -> Iterator[str]:
    """The URL of a Redis that runs during the block."""
    ports = Ports(1)
    data = folder / "redis"
    data.mkdir()
    command = ["redis-server", "--port", str(ports.first), "--bind", "127.0.0.1", "--dir", str(data), *MODES[mode]]
    try:
        with (folder / "redis.log").open("wb") as log, child(command, output=log, errors=log) as process:
            _wait_for(ports.first, process)
            yield f"redis://{ports.addresses[0]}"
    finally:
        ports.close()


def version() -> str:
    """The version of the installed redis-server."""
    command = ["redis-server", "--version"]
    words = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return next(word.removeprefix("v=") for word in words if word.startswith("v="))


def _wait_for(port: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.01)
        else:
            return
    raise UnavailableError(f"redis-server does not answer on port {port}; it exited with {process.poll()}")
