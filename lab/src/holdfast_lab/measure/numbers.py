"""Medians, percentiles and the way numbers are printed."""

import math
import statistics
from collections.abc import Sequence

ABSENT = "–"


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all values do not exceed."""
    rank = -(-len(ordered) * round(share * 1_000_000) // 1_000_000)
    return ordered[max(0, rank - 1)]


def number(value: float) -> str:
    """A number with three significant digits; whole numbers in full."""
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
    """The range from the smallest to the largest value; one number if both print the same."""
    if not values:
        return ABSENT
    low, high = number(min(values)), number(max(values))
    return low if low == high else f"{low}–{high}"


def cell(values: Sequence[float]) -> str:
    """The median, with the range over the runs in brackets."""
    if not values:
        return ABSENT
    if len(values) == 1:
        return number(values[0])
    return f"{number(statistics.median(values))} ({spanned(values)})"
