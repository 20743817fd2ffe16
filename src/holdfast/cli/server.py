"""`holdfast up` and `holdfast server`. Every setting is an option, from the one table of settings."""

import inspect
import os
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from holdfast.settings import FIELDS, MEMORY, OF_THE_PIPELINE, OF_ZOOKEEPER, SESSION_MS, Settings, purpose
from holdfast.settings_sources import load

if TYPE_CHECKING:
    from holdfast.observe.logging import ByteStream


def up(**flags: object) -> None:
    """All processes of a topology, until TERM or INT."""
    loaded = load(Settings, flags=flags, environment=os.environ, folder=Path.cwd())
    settings = loaded.settings
    own = _OF_TOPOLOGIES.get(settings.topology, {})
    unsaid = {name: value for name, value in own.items() if loaded.origins[name] == "default"}
    settings = msgspec.structs.replace(settings, **unsaid)
    if not (settings.is_in_memory or settings.database or settings.ensemble):
        from holdfast.process.directory_owner import refuse_another

        refuse_another(Path(settings.data), settings.topology)
    run_program(settings, _topology(settings.topology))


def _topology(name: str) -> "Callable[[Settings, ByteStream], Coroutine[Any, Any, None]]":
    """The program of a topology; only the one that is asked for is loaded."""
    if name == "microservices":
        from holdfast.topologies.microservices import up as microservices

        return microservices.serve
    if name == "monolith":
        from holdfast.topologies.monolith import up as monolith

        return monolith.serve
    if name == "pipeline":
        from holdfast.topologies.pipeline.requirements import need_packages

        need_packages()
        from holdfast.topologies.pipeline.up import serve as serve_pipeline

        return serve_pipeline
    if name == "zookeeper":
        from holdfast.topologies.zookeeper.up import serve as serve_zookeeper

        return serve_zookeeper
    from holdfast.topologies.embedded.up import serve_and_work

    return serve_and_work


def server(**flags: object) -> None:
    """A server, until TERM or INT."""
    settings = _settings(flags)
    from holdfast.topologies.embedded.up import serve

    run_program(settings, serve)


def _settings(flags: dict[str, object]) -> Settings:
    return load(Settings, flags=flags, environment=os.environ, folder=Path.cwd()).settings


def run_program(settings: Settings, program: "Callable[[Settings, ByteStream], Coroutine[Any, Any, None]]") -> None:
    """Runs it on a loop, with the log that the settings ask for."""
    import uvloop

    from holdfast.observe import logging
    from holdfast.observe.log_stream import BackgroundStream
    from holdfast.observe.tracing_export import exporting

    stream = BackgroundStream(sys.stderr.fileno())
    logging.configure(service="holdfast", level=settings.log_level, log_format=settings.log_format, stream=stream)
    try:
        with exporting(os.environ, "holdfast"):
            uvloop.run(program(settings, stream))
    finally:
        stream.close()


def signature_of(names: Iterable[str]) -> inspect.Signature:
    """One optional option a setting, with the setting's own description; the values are checked by `load`."""
    return inspect.Signature(
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_annotation(name))
            for name in names
        ]
    )


def of_a_gateway(names: Iterable[str]) -> Iterator[inspect.Parameter]:
    """The same for one that keeps nothing, and so has no directory with tokens in it."""
    tokens = typer.Option(
        "--tokens", metavar="FILE", help="the file of tokens (default: none, and only this machine calls)"
    )
    for parameter in signature_of(names).parameters.values():
        yield parameter.replace(annotation=Annotated[str | None, tokens]) if parameter.name == "tokens" else parameter


def _annotation(name: str) -> object:
    names = (f"--{name.replace('_', '-')}", *_SHORT.get(name, ()))
    if isinstance(FIELDS[name].default, bool):
        return Annotated[bool | None, typer.Option(*names, help=purpose(name), metavar="", show_default=False)]
    help_text = f"{purpose(name)} (default: {_default(name)})"
    return Annotated[str | None, typer.Option(*names, help=help_text, metavar=_metavar(name), show_default=False)]


def _metavar(name: str) -> str:
    return _METAVARS.get(name) or _METAVARS.get(_unit(name), "N")


def _default(name: str) -> str:
    """A default as people read it: large ones also in a larger unit."""
    default = FIELDS[name].default
    if name in {"metrics_port", "app"}:
        return "none"
    if name in _UNSAID:
        return _UNSAID[name]
    for size, unit in _LARGER_UNITS.get(_unit(name), ()):
        if default and default % size == 0:
            return f"{default} = {default // size} {unit}"
    return str(default)


def _unit(name: str) -> str:
    return name.rpartition("_")[2]


_UNSAID = {
    "worker_id": "made from the host's name",
    "tokens": "tokens.json in the data directory",
    "tls_cert": "no TLS",
    "tls_key": "no TLS",
    "tls_client_ca": "no certificates of clients",
    "allowed_hosts": "localhost and the address",
    "database": "a private one in the data directory",
    "ensemble": "a private one in the data directory",
}
_METAVARS = {
    "tokens": "FILE",
    "tls_cert": "FILE",
    "tls_key": "FILE",
    "tls_client_ca": "FILE",
    "allowed_hosts": "A,B",
    "data": "DIRECTORY",
    "host": "ADDRESS",
    "port": "PORT",
    "metrics_port": "PORT",
    "worker_id": "NAME",
    "app": "MODULE:APP",
    "ms": "MS",
    "bytes": "BYTES",
    "log_level": "LEVEL",
    "log_format": "FORMAT",
    "topology": "NAME",
    "database": "URL",
    "ensemble": "HOSTS",
}
_LARGER_UNITS: Mapping[str, tuple[tuple[int, str], ...]] = {
    "ms": ((86_400_000, "d"), (60_000, "min"), (1_000, "s")),
    "bytes": ((1 << 20, "MiB"),),
}
#: What a topology does where nothing is said: jobs are kept on disk where that is asked for.
_OF_TOPOLOGIES: Mapping[str, Mapping[str, Any]] = {
    "microservices": {"data": MEMORY, "slots": 6},
    "monolith": {"data": MEMORY, "slots": 1, "port": 50_061},
    "pipeline": {"slots": 5},
    "zookeeper": {"lease_ms": SESSION_MS},
}
_OF_THE_WORKER = frozenset({"slots", "worker_id", "app", "topology", "nodes"}) | OF_THE_PIPELINE | OF_ZOOKEEPER
#: As `holdfast worker` has them.
_SHORT: Mapping[str, tuple[str, ...]] = {"app": ("-A",), "slots": ("-c",)}

# typer reads the signature; mypy does not know that functions may carry one.
up.__signature__ = signature_of(FIELDS)  # type: ignore[attr-defined]
# Those of the worker may stand in the file and the environment that it shares with `up`, but are no flags here.
server.__signature__ = signature_of(name for name in FIELDS if name not in _OF_THE_WORKER)  # type: ignore[attr-defined]
