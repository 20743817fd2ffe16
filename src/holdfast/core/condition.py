"""Conditions: problems that an operator should handle while the server keeps serving.

A condition holds as long as its cause. Conditions are computed on every query, so none has to be cleared.
"""

import re
from collections.abc import Callable, Sequence

import msgspec

#: A condition in a sentence, as `Condition.__str__` writes it, perhaps after the number of its node.
_SENTENCE = re.compile(r"((?:node \d+: )?[^:]*)(?:: (.*))?", re.DOTALL)


class Condition(msgspec.Struct, frozen=True):
    """One problem of a server that still serves."""

    #: Every client of the server can read it, so it contains no file name, no address, and no colon.
    summary: str
    #: For operators: the cause and the remedy.
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.summary}: {self.detail}" if self.detail else self.summary


def parsed(warning: str) -> Condition:
    """Returns the condition of a warning in the statistics of a backend; the number of a node is in its summary."""
    found = _SENTENCE.fullmatch(warning)
    # A text of another form could contain file names anywhere.
    return Condition(found[1], found[2] or "") if found else Condition("a server has a warning", warning)


Conditions = Callable[[], Sequence[Condition]]


def no_conditions() -> Sequence[Condition]:
    """Reports no problems."""
    return ()


def ready_text(conditions: Sequence[Condition]) -> str:
    """The body of `/readyz` for a server that is ready: `ready`, then one warning line for each condition."""
    return "".join(["ready\n", *(f"warning: {condition.summary}\n" for condition in conditions)])
