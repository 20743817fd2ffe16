"""What an operator should look at while the server serves on.

A condition holds for as long as its cause does, and is asked for whenever somebody looks: there is nothing to clear.
"""

from collections.abc import Callable, Sequence

import msgspec


class Condition(msgspec.Struct, frozen=True):
    """One thing that is not as it should be."""

    #: For everybody who can reach the server, so it names no file and no address.
    summary: str
    #: For operators: the cause, and what to do.
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.summary}: {self.detail}" if self.detail else self.summary


Conditions = Callable[[], Sequence[Condition]]


def no_conditions() -> Sequence[Condition]:
    """All is well."""
    return ()


def ready_text(conditions: Sequence[Condition]) -> str:
    """The page of a server that is ready: one word, then a line for each thing that is not as it should be."""
    return "".join(["ready\n", *(f"warning: {condition.summary}\n" for condition in conditions)])
