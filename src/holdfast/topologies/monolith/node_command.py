"""`holdfast node`: one node of the monolith topology."""

import inspect
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from holdfast.cli.server import run_program, signature_of
from holdfast.errors import InvalidArgumentError
from holdfast.settings import FIELDS, MEMORY, Settings
from holdfast.settings_sources import LoadedSettings, load
from holdfast.topologies.table import OWN_SETTINGS

_PORT = 50_061
_NO_SLOTS = "0"


def node(
    index: int,
    *,
    socket: Path | None = None,
    has_lifeline: bool = False,
    is_early: bool = False,
    **flags: object,
) -> None:
    """Runs a node until TERM or INT."""
    has_slots = flags.get("slots") != _NO_SLOTS
    given = flags if has_slots else {**flags, "slots": None}
    settings = _unsaid(load(Settings, flags=given, environment=os.environ, folder=Path.cwd()), index)
    if not 0 <= index < settings.nodes:
        message = f"--index must be from 0 to {settings.nodes - 1}, because --nodes is {settings.nodes}, got {index}"
        raise InvalidArgumentError(message, reason="SETTINGS_INVALID")
    from holdfast.core.owner import Ownership
    from holdfast.process.lifeline import lifeline
    from holdfast.topologies.monolith.node import program

    if has_lifeline:
        lifeline()
    ownership = Ownership(index=index, nodes=settings.nodes)
    run_program(settings, program(ownership, has_slots=has_slots, socket=socket, is_early=is_early))


def _unsaid(loaded: LoadedSettings[Settings], index: int) -> Settings:
    """Returns the settings with the defaults of the topology for those that were not given."""
    own = {"data": MEMORY, "slots": 1, "port": _PORT + index}
    unsaid = {name: value for name, value in own.items() if loaded.origins[name] == "default"}
    return msgspec.structs.replace(loaded.settings, **unsaid)


#: Options whose defaults differ from those of a server.
_OWN: Mapping[str, object] = {
    "data": typer.Option("--data", metavar="DIRECTORY", help="Data directory (default: in memory)"),
    "port": typer.Option("--port", metavar="PORT", help=f"gRPC port to listen on (default: {_PORT} plus the index)"),
    "slots": typer.Option("--slots", "-c", metavar="N", help="Number of jobs to run at a time; 0: none (default: 1)"),
}


def _parameters() -> Iterator[inspect.Parameter]:
    for parameter in signature_of(
        name for name in FIELDS if name not in {"topology", *OWN_SETTINGS}
    ).parameters.values():
        own = _OWN.get(parameter.name)
        yield parameter if own is None else parameter.replace(annotation=Annotated[str | None, own])


def _signature() -> inspect.Signature:
    """Returns all settings of a node, and its index."""
    index = typer.Option("--index", metavar="I", help="Index of this node, from 0; a data directory keeps its index")
    socket = typer.Option("--socket", hidden=True)
    lifeline = typer.Option("--lifeline", hidden=True)
    early = typer.Option("--early", hidden=True)
    return inspect.Signature(
        [
            inspect.Parameter("index", inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[int, index]),
            *_parameters(),
            inspect.Parameter(
                "socket", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[Path | None, socket]
            ),
            inspect.Parameter(
                "has_lifeline", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, lifeline]
            ),
            inspect.Parameter(
                "is_early", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, early]
            ),
        ]
    )


# typer reads the signature; mypy does not know that functions may carry one.
node.__signature__ = _signature()  # type: ignore[attr-defined]
