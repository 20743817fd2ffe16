"""A server that requires a token, as a separate process, and its figures as seen from outside."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from holdfast.server.auth import tokens
from holdfast.server.auth.permissions import Scope
from holdfast_lab.measure.processes import ServerProcess, holdfast_server


@contextmanager
def secured_server(*options: str) -> Iterator[ServerProcess]:
    """A server with its defaults and these options, and a token that has all rights."""
    with tempfile.TemporaryDirectory(prefix="holdfast-tokens-") as folder:
        path = Path(folder) / tokens.FILE_NAME
        token = tokens.create(path, "measuring", [Scope.ADMIN], now_ms=time.time_ns() // 1_000_000)
        with holdfast_server("--tokens", str(path), "--log-level", "error", *options) as server:
            yield msgspec.structs.replace(server, token=token)
