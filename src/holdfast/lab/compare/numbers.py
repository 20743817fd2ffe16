"""Numbers for people."""

import math
import statistics
from collections.abc import Sequence

ABSENT = "–"


def number(value: float) -> str:
    """Three digits that mean something."""
    if value == int(value):
        return f"{int(value):,}"
    for least, digits in ((100, 0), (10, 1), (1, 2)):
        if abs(value) >= least:
            return f"{value:,.{digits}f}"
    return f"{value:.3f}"


def times(value: float) -> str:
    """A factor."""
    return "infinity" if math.isinf(value) else f"{value:.3g}" if value < 10 else f"{value:,.0f}"  # noqa: PLR2004


def spanned(values: Sequence[float]) -> str:
    """From the least to the most; one number if that is the same."""
    if not values:
        return ABSENT
    low, high = number(min(values)), number(max(values))
    return low if low == high else f"{low}–{high}"


def cell(values: Sequence[float]) -> str:
    """The median, and the range over the runs."""
    if not values:
        return ABSENT
    if len(values) == 1:
        return number(values[0])
    return f"{number(statistics.median(values))} ({spanned(values)})"
