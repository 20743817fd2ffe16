"""`holdfast node`: one of several equal nodes."""

import inspect
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from holdfast.cli.server import run_program, signature_of
from holdfast.errors import InvalidArgumentError
from holdfast.settings import FIELDS, MEMORY, OF_THE_PIPELINE, OF_ZOOKEEPER, Settings
from holdfast.settings_sources import Loaded, load

_PORT = 50_061
_NO_SLOTS = "0"


def node(index: int, *, socket: Path | None = None, has_lifeline: bool = False, **flags: object) -> None:
    """A node, until TERM or INT."""
    has_slots = flags.get("slots") != _NO_SLOTS
    given = flags if has_slots else {**flags, "slots": None}
    settings = _unsaid(load(Settings, flags=given, environment=os.environ, folder=Path.cwd()), index)
    if not 0 <= index < settings.nodes:
        message = f"expected --index to be from 0 to {settings.nodes - 1}, one less than --nodes, got {index}"
        raise InvalidArgumentError(message, reason="SETTINGS_INVALID")
    from holdfast.core.owner import Ownership
    from holdfast.process.lifeline import die_with_parent, lifeline
    from holdfast.topologies.monolith.node import program

    if has_lifeline:
        die_with_parent()
        lifeline()
    ownership = Ownership(index=index, nodes=settings.nodes)
    run_program(settings, program(ownership, has_slots=has_slots, socket=socket))


def _unsaid(loaded: Loaded[Settings], index: int) -> Settings:
    """What nobody said is as in the whole topology."""
    own = {"data": MEMORY, "slots": 1, "port": _PORT + index}
    unsaid = {name: value for name, value in own.items() if loaded.origins[name] == "default"}
    return msgspec.structs.replace(loaded.settings, **unsaid)


#: What a node has other defaults for than a server.
_OWN: Mapping[str, object] = {
    "data": typer.Option("--data", metavar="DIRECTORY", help="where jobs are kept (default: in memory)"),
    "port": typer.Option("--port", metavar="PORT", help=f"the port to listen on (default: {_PORT} and the index)"),
    "slots": typer.Option("--slots", "-c", metavar="N", help="how many jobs it runs at a time, or 0 (default: 1)"),
}


def _parameters() -> Iterator[inspect.Parameter]:
    for parameter in signature_of(
        name for name in FIELDS if name not in {"topology", *OF_THE_PIPELINE, *OF_ZOOKEEPER}
    ).parameters.values():
        own = _OWN.get(parameter.name)
        yield parameter if own is None else parameter.replace(annotation=Annotated[str | None, own])


def _signature() -> inspect.Signature:
    """Every setting but the topology's name, and which node it is."""
    index = typer.Option("--index", metavar="I", help="which node this is, from 0 on; fixed for its directory")
    socket = typer.Option("--socket", hidden=True)
    lifeline = typer.Option("--lifeline", hidden=True)
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
        ]
    )


# typer reads the signature; mypy does not know that functions may carry one.
node.__signature__ = _signature()  # type: ignore[attr-defined]
