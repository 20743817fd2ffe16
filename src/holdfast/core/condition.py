"""Conditions: problems that an operator should handle while the server keeps serving.

A condition holds as long as its cause. Conditions are computed on every query, so none has to be cleared.
"""

from collections.abc import Callable, Sequence

import msgspec


class Condition(msgspec.Struct, frozen=True):
    """One problem of a server that still serves."""

    #: Every client of the server can read it, so it contains no file name and no address.
    summary: str
    #: For operators: the cause and the remedy.
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.summary}: {self.detail}" if self.detail else self.summary


Conditions = Callable[[], Sequence[Condition]]


def no_conditions() -> Sequence[Condition]:
    """Reports no problems."""
    return ()


def ready_text(conditions: Sequence[Condition]) -> str:
    """The body of `/readyz` for a server that is ready: `ready`, then one warning line for each condition."""
    return "".join(["ready\n", *(f"warning: {condition.summary}\n" for condition in conditions)])
