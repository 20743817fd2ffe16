"""`holdfast up` and `holdfast server`. Every setting is an option, from the one table of settings."""

import inspect
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
import uvloop

from holdfast.cli.worker import VARIABLES as WORKER_VARIABLES
from holdfast.observe import logging
from holdfast.observe.logging import ByteStream
from holdfast.observe.stream import BackgroundStream
from holdfast.settings import FIELDS, Settings, load
from holdfast.topology.embedded import serve, serve_and_work


def up(**flags: object) -> None:
    """A server and a worker, until TERM or INT."""
    _run(flags, serve_and_work)


def server(**flags: object) -> None:
    """A server, until TERM or INT."""
    _run(flags, serve)


def _run(flags: dict[str, object], program: Callable[[Settings, ByteStream], Coroutine[Any, Any, None]]) -> None:
    loaded = load(flags=flags, environment=os.environ, folder=Path.cwd(), other_variables=WORKER_VARIABLES)
    settings = loaded.settings
    stream = BackgroundStream(sys.stderr.fileno())
    logging.configure(service="holdfast", level=settings.log_level, log_format=settings.log_format, stream=stream)
    try:
        uvloop.run(program(settings, stream))
    finally:
        stream.close()


def _signature() -> inspect.Signature:
    """One optional option a setting, with the setting's own description; the values are checked by `load`."""
    parameters = []
    for name, field in FIELDS.items():
        option = f"--{name.replace('_', '-')}"
        help_text = f"{get_args(field.type)[1].description} (default: {field.default!s})"
        kind: Any = bool | None if isinstance(field.default, bool) else str | None
        annotation = Annotated[kind, typer.Option(option, help=help_text, show_default=False)]
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation))
    return inspect.Signature(parameters)


for _command in (up, server):
    _command.__signature__ = _signature()  # type: ignore[attr-defined]
