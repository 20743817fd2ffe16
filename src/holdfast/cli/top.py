"""`holdfast top`: the first page of the dashboard on a terminal."""

import os
import sys
from typing import Annotated

import typer

from holdfast.cli.connection import Connect, ServerConnection
from holdfast.cli.numbers import counted
from holdfast.cli.text import Json

#: Terminals that only print one line after the other.
_WITHOUT_SCREEN = ("dumb", "unknown")


def top(
    interval_s: Annotated[
        float,
        typer.Option(
            "--interval", "-i", min=0.2, max=60, metavar="SECONDS", help="Between two looks.", callback=counted
        ),
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print it once, after two looks, and end.")] = False,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Watch the whole system: is it healthy, how deep, how old, how fast, what fails and why.

    On a terminal with a screen it goes on until q; elsewhere it is printed once.
    """
    from holdfast.cli.top_loop import Watching, look, print_once

    place = connect or os.environ.get("HOLDFAST_CONNECT") or "this machine"
    with ServerConnection(connect) as server:
        is_screen = sys.stdout.isatty() and os.environ.get("TERM") not in _WITHOUT_SCREEN
        if once or as_json or not is_screen:
            server.ask(lambda client: print_once(client, interval_s, place, as_json=as_json))
            return
        server.ask(look)  # so that a wrong address is told at once
        Watching(place, interval_s).run(server)
