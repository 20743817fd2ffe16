"""Parsers of options that take a number. Their errors name the option, the allowed values and what was given."""

import math
from collections.abc import Callable
from typing import TypeVar

from holdfast.errors import InvalidArgumentError

N = TypeVar("N", int, float)


def number(option: str, minimum: float, maximum: float | None = None) -> Callable[[str | float], float]:
    """Returns a parser of numbers within limits, for `typer.Option(parser=...)`."""
    return _parser(float, option, "a number", (minimum, maximum))


def whole_number(option: str, minimum: int, maximum: int | None = None) -> Callable[[str | int], int]:
    """Returns a parser of whole numbers within limits."""
    return _parser(int, option, "a whole number", (minimum, maximum))


def _parser(
    convert: Callable[[str], N], option: str, kind: str, limits: tuple[N, N | None]
) -> Callable[[str | float], N]:
    minimum, maximum = limits
    allowed = f"of at least {minimum:.12g}" if maximum is None else f"from {minimum:.12g} to {maximum:.12g}"

    def parse(value: str | float) -> N:
        """Returns the number; `InvalidArgumentError` if it is none, or not within the limits."""
        try:
            found = convert(str(value))
        except ValueError:
            pass
        else:
            # A comparison with nan is false, so nan is refused here too.
            if minimum <= found <= (math.inf if maximum is None else maximum):
                return found
        raise InvalidArgumentError(f"{option} must be {kind} {allowed}, got {str(value)!r}", reason="OPTION_INVALID")

    return parse
