"""`holdfast up` and `holdfast server`. The table of settings defines their options."""

import inspect
import os
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from holdfast.settings import FIELDS, Settings, purpose
from holdfast.settings_sources import LoadedSettings, load
from holdfast.topologies.table import OWN_SETTINGS, topology_named

if TYPE_CHECKING:
    from holdfast.observe.log_setup import ByteStream


def up(**flags: object) -> None:
    """Runs all processes of a topology until TERM or INT."""
    settings = of_topology(load(Settings, flags=flags, environment=os.environ, folder=Path.cwd()))
    if not (settings.is_in_memory or settings.database or settings.ensemble):
        from holdfast.process.directory_owner import refuse_another

        refuse_another(Path(settings.data), settings.topology)
    run_program(settings, resolve_name(topology_named(settings.topology).program))


def of_topology(loaded: LoadedSettings[Settings]) -> Settings:
    """Returns the settings with the defaults of their topology for those that were not given."""
    defaults = topology_named(loaded.settings.topology).defaults
    unsaid = {name: value for name, value in defaults.items() if loaded.origins[name] == "default"}
    return msgspec.structs.replace(loaded.settings, **unsaid)


def server(**flags: object) -> None:
    """Runs a server until TERM or INT."""
    settings = _settings(flags)
    from holdfast.topologies.embedded.up import serve

    run_program(settings, serve)


def _settings(flags: dict[str, object]) -> Settings:
    return load(Settings, flags=flags, environment=os.environ, folder=Path.cwd()).settings


def run_program(settings: Settings, program: "Callable[[Settings, ByteStream], Coroutine[Any, Any, None]]") -> None:
    """Runs the program on an event loop, with logging as the settings define it."""
    import uvloop

    from holdfast.observe import log_setup
    from holdfast.observe.log_stream import BackgroundStream
    from holdfast.observe.tracing_export import exporting

    stream = BackgroundStream(sys.stderr.fileno())
    log_setup.configure(service="holdfast", level=settings.log_level, log_format=settings.log_format, stream=stream)
    try:
        with exporting(os.environ, "holdfast"):
            uvloop.run(program(settings, stream))
    finally:
        stream.close()


def signature_of(names: Iterable[str]) -> inspect.Signature:
    """Returns one option per setting, with the help text of the setting; `load` checks the values."""
    return inspect.Signature(
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_annotation(name))
            for name in names
        ]
    )


def of_a_gateway(names: Iterable[str]) -> Iterator[inspect.Parameter]:
    """Yields the same for a process without a data directory, and so without a default token file."""
    tokens = typer.Option("--tokens", metavar="FILE", help="Token file (default: none, callers need no token)")
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
    """Returns a default for help texts; large ones also in a larger unit."""
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
    "worker_id": "made from the host name",
    "tokens": "tokens.json in the data directory",
    "tls_cert": "no TLS",
    "tls_key": "no TLS",
    "tls_client_ca": "no client certificates",
    "allowed_hosts": "localhost and the listen address",
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
_OF_THE_WORKER = OWN_SETTINGS | {"slots", "worker_id", "app", "topology", "nodes"}
#: The short options of `holdfast worker`.
_SHORT: Mapping[str, tuple[str, ...]] = {"app": ("-A",), "slots": ("-c",)}

# typer reads the signature; mypy does not know that functions may carry one.
up.__signature__ = signature_of(FIELDS)  # type: ignore[attr-defined]
# Settings of the worker may be in the file and environment, which `up` shares, but are not options of `server`.
server.__signature__ = signature_of(name for name in FIELDS if name not in _OF_THE_WORKER)  # type: ignore[attr-defined]
