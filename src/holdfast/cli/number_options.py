"""Checks of numbers that options take."""

import math
from typing import TypeVar

import typer

Given = TypeVar("Given", float, float | None)


def counted(value: Given) -> Given:
    """Refuses `nan`, which passes the checks of limits because every comparison with it is false."""
    if value is not None and math.isnan(value):
        raise typer.BadParameter("nan is not a number.")
    return value
