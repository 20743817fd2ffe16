"""`holdfast events`: the events of all jobs, in order and without a gap."""

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.connection import Connect, ask
from holdfast.cli.number_options import whole_number
from holdfast.cli.text import Json, as_clock, print_json, printable, say
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.client.link import Client
    from holdfast.core.history import Entry


def events(
    after: Annotated[
        int | None,
        typer.Option(
            parser=whole_number("--after", 0),
            metavar="POSITION",
            help="Start after this position; 0: with the oldest event (default: now).",
        ),
    ] = None,
    limit: Annotated[
        int,
        typer.Option(
            "--limit",
            "-n",
            parser=whole_number("--limit", 0),
            metavar="N",
            help="Stop after this many lines; 0: never.",
        ),
    ] = 0,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Print the events of all jobs as they become durable, one per line, until Ctrl-C.

    To continue after an interruption, pass the last printed position to --after. Lines with the same position are
    printed together.
    """
    follower = _Follower(after, limit, as_json=as_json)
    try:
        ask(connect, follower.run)
    except (KeyboardInterrupt, HoldfastError):
        follower.say_where_to_go_on()
        raise


class _Follower:
    """Prints entries, and tracks the position up to which all of them were printed."""

    def __init__(self, after: int | None, limit: int, *, as_json: bool) -> None:
        self._after = after
        self._limit = limit
        self._count = 0
        self._as_json = as_json
        self._is_told = False

    async def run(self, client: "Client") -> None:
        async for part in client.feed(self._after):
            for entry in part.entries:
                self._print(entry)
                self._count += 1
                if self._count == self._limit:
                    return
            self._after, self._is_told = part.position, True

    def say_where_to_go_on(self) -> None:
        if self._is_told:
            say(f"holdfast: continue with --after {self._after}")

    def _print(self, entry: "Entry") -> None:
        if self._as_json:
            from holdfast.cli.views import entry_json

            print_json(entry_json(entry))
            return
        words = (as_clock(entry.at_ms), entry.job_id, entry.what, entry.state, entry.worker, entry.reason)
        print(printable("  ".join((f"{entry.position:>8}", *filter(None, words)))), flush=True)
