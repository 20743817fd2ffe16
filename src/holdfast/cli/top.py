"""`holdfast top`: the overview page of the dashboard in a terminal."""

import os
import sys
from typing import Annotated

import typer

from holdfast.cli.connection import Connect, ServerConnection
from holdfast.cli.number_options import number
from holdfast.cli.text import Json

#: Terminals without cursor control.
_WITHOUT_SCREEN = ("dumb", "unknown")


def top(
    interval_s: Annotated[
        float,
        typer.Option(
            "--interval",
            "-i",
            metavar="SECONDS",
            help="Seconds between two samples.",
            parser=number("--interval", 0.2, 60),
        ),
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print once, after two samples, and exit.")] = False,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Watch the whole system: health, queue depth, oldest job, throughput, and failures by reason.

    On a terminal it runs until q; elsewhere it prints once.
    """
    from holdfast.cli.top_loop import TopLoop, look, print_once

    place = connect or os.environ.get("HOLDFAST_CONNECT") or "this machine"
    with ServerConnection(connect) as server:
        is_screen = sys.stdout.isatty() and os.environ.get("TERM") not in _WITHOUT_SCREEN
        if once or as_json or not is_screen:
            server.ask(lambda client: print_once(client, interval_s, place, as_json=as_json))
            return
        server.ask(look)  # reports a wrong address at once
        TopLoop(place, interval_s).run(server)
