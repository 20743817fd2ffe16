"""Fuzz targets: a function that takes bytes and raises only for a bug, and seeds."""

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import NamedTuple


class Target(NamedTuple):
    """One decoder of external data."""

    name: str
    fuzz: Callable[[bytes], None]
    #: Valid inputs, from which others are made.
    seeds: Sequence[bytes]
    #: Inputs that `make test` tries: fewer where one takes long.
    examples: int = 300
    #: Whether to guide inputs by coverage: not where measuring coverage costs too much.
    is_guided: bool = True


#: Each is a module of `tests/fuzz/targets` with `fuzz(data)` and `seeds()`, and perhaps `EXAMPLES` and `IS_GUIDED`.
NAMES = (
    "archives",
    "backup_file",
    "child",
    "codec",
    "cron",
    "cursors",
    "envelopes",
    "events",
    "grpc",
    "history",
    "http_json",
    "http_stream",
    "image",
    "journal",
    "line",
    "outputs",
    "port_rpc",
    "records",
    "roles",
    "settings",
    "snapshot",
    "strict_json",
    "tokens",
    "trace_context",
    "urls",
    "wire_client",
    "wire_frames",
    "wire_server",
    "zookeeper_records",
)


_OPTIONS = ("examples", "is_guided")


def target(name: str) -> Target:
    """The target of this name; `ImportError` if there is none."""
    module = import_module(f"tests.fuzz.targets.{name}")
    seeds: Iterable[bytes] = module.seeds()
    said = {field: getattr(module, field.upper()) for field in _OPTIONS if hasattr(module, field.upper())}
    return Target(name, module.fuzz, tuple(seeds), **said)
