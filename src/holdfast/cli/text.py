"""How commands print: times, tables, and text that cannot harm a terminal."""

import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

Json = Annotated[bool, typer.Option("--json", help="print JSON instead of text")]

#: Wide enough for a line of any table when nobody looks at it on a screen.
_FILE_COLUMNS = 240


def as_time(at_ms: int) -> str:
    """A time for people, in their own zone; empty where there is none."""
    if not at_ms:
        return ""
    return datetime.fromtimestamp(at_ms / 1_000, UTC).astimezone().isoformat(sep=" ", timespec="milliseconds")


def printable(text: str) -> str:
    """What a job carries is hostile: an escape sequence must not reach the terminal."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Columns without lines between them; ids and states are never broken."""
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=column in {"ID", "JOB", "STATE", "POSITION", "TOKEN"})
    for row in rows:
        table.add_row(*map(escape, row))
    Console(width=None if sys.stdout.isatty() else _FILE_COLUMNS).print(table)
