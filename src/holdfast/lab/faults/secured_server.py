"""A server that wants a token, as a process of its own, with what can be measured of it from outside."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from holdfast.lab.processes import holdfast_server
from holdfast.server.auth import tokens
from holdfast.server.auth.permissions import Scope

_KIB = 1_024


class SecuredServer(msgspec.Struct, frozen=True):
    """Where it is, its process, its directory, and a token that may do everything."""

    address: str
    pid: int
    data: Path
    token: str

    @property
    def url(self) -> str:
        """For the SDK and for workers."""
        return f"holdfast://{self.token}@{self.address}"

    @property
    def place(self) -> tuple[str, int]:
        """Host and port."""
        host, _, port = self.address.rpartition(":")
        return host, int(port)

    @property
    def peak_bytes(self) -> int:
        """The most memory that it ever had resident."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * _KIB
        raise RuntimeError(f"no peak of the resident size for process {self.pid}")

    @property
    def descriptors(self) -> int:
        """How many it has open; 0 if it is gone."""
        try:
            return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))
        except OSError:
            return 0


@contextmanager
def secured_server(*options: str) -> Iterator[SecuredServer]:
    """A server with its defaults and these options, ended with the block."""
    with tempfile.TemporaryDirectory(prefix="holdfast-tokens-") as folder:
        path = Path(folder) / tokens.FILE_NAME
        token = tokens.create(path, "measuring", [Scope.ADMIN], now_ms=time.time_ns() // 1_000_000)
        with holdfast_server("--tokens", str(path), "--log-level", "error", *options) as (address, pid, data):
            yield SecuredServer(address, pid, data, token)
