"""Tables on a terminal: no cell is cut and no word is broken; cells that do not fit continue below their row."""

import textwrap
from collections.abc import Collection, Sequence

from rich.cells import cell_len

_GAP, _INDENT = "  ", "    "


class TableLayout:
    """The widths of the columns, and the number of columns that fit side by side."""

    def __init__(self, rows: Sequence[Sequence[str]], right: Collection[int], width: int) -> None:
        """`rows` includes the heading; the columns in `right` are aligned to the right."""
        self._width = width
        self._right = right
        self._widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
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
            if cell_len(whole) <= self._width:
                return [whole]
        below = textwrap.wrap(rest, max(1, self._width - len(_INDENT)), break_long_words=False, break_on_hyphens=False)
        return [beside.rstrip(), *(_INDENT + line for line in below)]

    def _padded(self, index: int, cell: str) -> str:
        padding = " " * (self._widths[index] - cell_len(cell))
        return padding + cell if index in self._right else cell + padding
