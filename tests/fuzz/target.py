"""What is fuzzed: a function that takes bytes and raises only when something is wrong, and inputs to begin with."""

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import NamedTuple


class Target(NamedTuple):
    """One thing that reads what others wrote."""

    name: str
    fuzz: Callable[[bytes], None]
    #: Inputs of the usual kind, from which others are made.
    seeds: Sequence[bytes]
    #: How many inputs `make test` tries: fewer where each of them takes long.
    examples: int = 300
    #: Whether it pays to look at what each input reaches: where that costs more than the input, it does not.
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
    "frames",
    "grpc",
    "history",
    "http_json",
    "http_stream",
    "image",
    "journal",
    "line",
    "outputs",
    "records",
    "roles",
    "settings",
    "snapshot",
    "socket_talks",
    "strict_json",
    "tokens",
    "trace_context",
    "urls",
    "wire",
    "zookeeper_records",
)


_OPTIONS = ("examples", "is_guided")


def target(name: str) -> Target:
    """The target of this name; `ImportError` if there is none."""
    module = import_module(f"tests.fuzz.targets.{name}")
    seeds: Iterable[bytes] = module.seeds()
    said = {field: getattr(module, field.upper()) for field in _OPTIONS if hasattr(module, field.upper())}
    return Target(name, module.fuzz, tuple(seeds), **said)
