"""Conditions: problems that an operator should handle while the server keeps serving.

A condition holds as long as its cause. Conditions are computed on every query, so none has to be cleared.
"""

import re
from collections.abc import Callable, Sequence

import msgspec

_NODE = r"(?:node [0-9]+: )?"
#: Words without any character that a file name or an address needs; the number of a node may precede them.
_SUMMARY = rf"{_NODE}(?!node [0-9]+:)[A-Za-z0-9_%, -]+"
#: A condition in a sentence, as `Condition.__str__` writes it.
_SENTENCE = re.compile(rf"({_SUMMARY})(?:: (.*))?", re.DOTALL)


class Condition(msgspec.Struct, frozen=True):
    """One problem of a server that still serves."""

    #: Every client of the server can read it, so it contains no file name, no address, and no colon of its own.
    summary: str
    #: For operators: the cause and the remedy.
    detail: str = ""

    def __post_init__(self) -> None:
        assert re.fullmatch(_SUMMARY, self.summary), f"a summary that is not for every client: {self.summary!r}"

    def __str__(self) -> str:
        return f"{self.summary}: {self.detail}" if self.detail else self.summary


def parsed(warning: str) -> Condition:
    """Returns the condition of a warning in the statistics of a backend; the number of a node is in its summary."""
    found = _SENTENCE.fullmatch(warning)
    # A text of another form, such as that of another version, could contain file names anywhere.
    return Condition(found[1], found[2] or "") if found else Condition("a server has a warning", warning)


Conditions = Callable[[], Sequence[Condition]]


def no_conditions() -> Sequence[Condition]:
    """Reports no problems."""
    return ()


def ready_text(conditions: Sequence[Condition]) -> str:
    """The body of `/readyz` for a server that is ready: `ready`, then one warning line for each condition."""
    return "".join(["ready\n", *(f"warning: {condition.summary}\n" for condition in conditions)])
