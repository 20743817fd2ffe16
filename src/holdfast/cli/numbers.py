"""Numbers as options take them."""

import math
from typing import TypeVar

import typer

Given = TypeVar("Given", float, float | None)


def counted(value: Given) -> Given:
    """Refuses `nan`: it is beyond no limit, as comparisons tell, and within none."""
    if value is not None and math.isnan(value):
        raise typer.BadParameter("nan is no number.")
    return value
