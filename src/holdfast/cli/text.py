"""Output of commands: times, tables, JSON, and text that is safe for a terminal."""

import base64
import json
import sys
import textwrap
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from holdfast.core.text import printable as printable  # noqa: PLC0414 - re-exported

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]

#: Columns that are aligned to the right.
_RIGHT = frozenset({"READY", "DELAYED", "RUNNING", "SLOTS", "OLDEST", "POSITION", "TOKEN", "HEARTBEAT", "ATTEMPT"}) | {
    *("FIRED", "SKIPPED", "MISSED")
}
_GAP, _INDENT = "  ", "    "
_SECOND_MS, _MINUTE_MS, _HOUR_MS, _DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000


def as_time(at_ms: int) -> str:
    """Returns a time as text in the local zone; empty for 0."""
    if not at_ms:
        return ""
    return datetime.fromtimestamp(at_ms / 1_000, UTC).astimezone().isoformat(sep=" ", timespec="milliseconds")


def as_moment(at_ms: int) -> str:
    """Returns a time for a table: as short as possible on a terminal, elsewhere in full."""
    if not at_ms or not sys.stdout.isatty():
        return as_time(at_ms)
    is_today = as_time(at_ms)[:10] == datetime.now(UTC).astimezone().date().isoformat()
    return as_time(at_ms)[11:19] if is_today else as_time(at_ms)[:16]


def as_clock(at_ms: int) -> str:
    """Returns the time of day."""
    return as_time(at_ms)[11:23]


def as_span(span_ms: int) -> str:
    """Returns a duration in the largest unit that fits."""
    for size, unit in ((_DAY_MS, "d"), (_HOUR_MS, "h"), (_MINUTE_MS, "min"), (_SECOND_MS, "s")):
        if span_ms >= size:
            return f"{span_ms / size:.3g} {unit}"
    return f"{span_ms} ms"


def printable_lines(data: bytes) -> str:
    """Returns bytes as text for a terminal: keeps newlines and tabs, escapes other control characters."""
    text = data.decode(errors="backslashreplace")
    return "".join(char if char in "\n\t" else printable(char) for char in text)


def indented(text: str, columns: int = 2) -> str:
    """Returns untrusted text of several lines as an indented block that is safe for a terminal."""
    lines = printable_lines(text.encode(errors="replace")).splitlines()
    return "\n".join(f"{' ' * columns}{line}".rstrip() for line in lines)


def plain(data: bytes) -> object:
    """Returns bytes for JSON: as text if they are UTF-8, otherwise as base64."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def print_json(value: object) -> None:
    """Prints one line of JSON and flushes it, for programs that read a stream line by line."""
    print(json.dumps(value), flush=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], empty: str = "nothing") -> None:
    """Prints columns without lines between them; escapes the cells, which are untrusted.

    Without rows, a terminal gets the text `empty`, and a file gets the heading.
    """
    shown = [tuple(map(printable, row)) for row in rows]
    if sys.stdout.isatty():
        if shown:
            _print_for_a_screen(columns, shown)
        else:
            print(empty)
    else:
        _print_for_a_file(columns, shown)


def _print_for_a_file(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints the whole table, however wide it is."""
    widths = [max(len(row[index]) for row in (columns, *rows)) for index in range(len(columns))]
    is_right = [column in _RIGHT for column in columns]
    for row in (columns, *rows):
        cells = zip(row, widths, is_right, strict=True)
        print("  ".join(cell.rjust(width) if right else cell.ljust(width) for cell, width, right in cells).rstrip())


def _print_for_a_screen(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints the table in the width of the terminal; cells that do not fit go below their line."""
    from rich.console import Console
    from rich.text import Text

    console = Console()
    right = [index for index, column in enumerate(columns) if column in _RIGHT]
    layout = TableLayout((columns, *rows), right, console.width)
    for line in layout.lines(columns):
        console.print(Text(line, style="bold"), soft_wrap=True)
    for row in rows:
        print("\n".join(layout.lines(row)))


class TableLayout:
    """The widths of the columns, and the number of columns that fit side by side.

    No cell is cut and no word is broken; cells that do not fit continue below their row.
    """

    def __init__(self, rows: Sequence[Sequence[str]], right: Collection[int], width: int) -> None:
        """`rows` includes the heading; the columns in `right` are aligned to the right."""
        self._width = width
        self._right = right
        self._widths = [max(map(_cells, column)) for column in zip(*rows, strict=True)]
        self._beside = self._fitting()

    def _fitting(self) -> int:
        used = -len(_GAP)
        for count, width in enumerate(self._widths):
            used += len(_GAP) + width
            if used > self._width:
                return max(1, count)
        return len(self._widths)

    def lines(self, row: Sequence[str]) -> list[str]:
        """Returns the lines of a row: one, and more below it for cells that do not fit."""
        beside = _GAP.join(self._padded(index, row[index]) for index in range(self._beside))
        rest = _GAP.join(filter(None, row[self._beside :]))
        for start in (beside, beside.rstrip()):  # in its own column, else in columns that are empty in this row
            whole = f"{start}{_GAP}{rest}".rstrip()
            if _cells(whole) <= self._width:
                return [whole]
        below = textwrap.wrap(rest, max(1, self._width - len(_INDENT)), break_long_words=False, break_on_hyphens=False)
        return [beside.rstrip(), *(_INDENT + line for line in below)]

    def _padded(self, index: int, cell: str) -> str:
        padding = " " * (self._widths[index] - _cells(cell))
        return padding + cell if index in self._right else cell + padding


def _cells(text: str) -> int:
    """Returns the number of columns that a text takes on a terminal."""
    from rich.cells import cell_len

    return cell_len(text)


def print_fields(fields: Iterable[tuple[str, str]]) -> None:
    """Prints one line per field; fields without a value are left out."""
    shown = [(label, value) for label, value in fields if value]
    width = max((len(label) for label, _ in shown), default=0)
    for label, value in shown:
        print(f"{label:<{width}}  {printable(value)}")


def say(text: str) -> None:
    """Prints a message for the user on standard error, apart from the output for programs."""
    print(printable(text), file=sys.stderr, flush=True)
