"""The lifecycle of a job, as data.

Every state change in every backend is a row of `TRANSITIONS`. Only this table defines which moves are legal, and
`docs/lifecycle.md` is generated from it. Code that applies a change calls `check` first, so an illegal move raises
before anything has changed.
"""

from enum import IntEnum
from typing import NamedTuple


class State(IntEnum):
    """The five states; their numbers are part of the public contract and never change."""

    QUEUED = 1
    RUNNING = 2
    DONE = 3
    FAILED = 4
    CANCELED = 5

    def __str__(self) -> str:
        return self.name

    def __format__(self, spec: str) -> str:
        return format(self.name, spec)


#: Stands for "no job yet" as the source of a transition, and for the slot of an evicted job.
NOWHERE = 0

QUEUED, RUNNING, DONE, FAILED, CANCELED = State
_NAMES = ("", *(state.name for state in State))
TERMINAL = frozenset({DONE, FAILED, CANCELED})


class Transition(NamedTuple):
    """One legal move: its trigger, its states, and a note."""

    trigger: str
    source: State | None
    target: State
    note: str


TRANSITIONS = (
    Transition("submit", None, QUEUED, "durable before the caller gets the reply"),
    Transition("grant", QUEUED, RUNNING, "a lease with a new token, handed to one worker"),
    Transition("report done", RUNNING, DONE, "by the holder of the current lease only"),
    Transition("report failed", RUNNING, FAILED, "the last attempt, or one that must not be retried"),
    Transition("retry", RUNNING, QUEUED, "a failed attempt with attempts left; due after its backoff"),
    Transition("lease lost", RUNNING, QUEUED, "expired, dropped with its worker, or handed back"),
    Transition("losses spent", RUNNING, FAILED, "too many workers were lost while running it"),
    Transition("cancel queued", QUEUED, CANCELED, "at once; it never runs after that"),
    Transition("cancel running", RUNNING, CANCELED, "best effort: the worker stopped it, or was lost with it"),
)

LEGAL = frozenset((row.source or NOWHERE, row.target) for row in TRANSITIONS)


class IllegalTransitionError(AssertionError):
    """A state change that is not in the table: a bug, never a condition to handle."""


def check(source: int, target: int) -> None:
    """Raises if no row of the table allows this move; called before anything changes."""
    if (source, target) not in LEGAL:
        raise IllegalTransitionError(f"no transition from {name(source)} to {name(target)}")


def name(state: int) -> str:
    """The state's name for people and logs; an empty string for no job."""
    return _NAMES[state]


def to_markdown() -> str:
    """The lifecycle as a document: a diagram and the table, for `docs/lifecycle.md`."""
    edges = [
        f"    {row.source.name if row.source else '[*]'} --> {row.target.name}: {row.trigger}" for row in TRANSITIONS
    ]
    rows = [
        f"| {row.trigger} | {row.source.name if row.source else '—'} | {row.target.name} | {row.note} |"
        for row in TRANSITIONS
    ]
    terminal = ", ".join(state.name for state in State if state in TERMINAL)
    return "\n".join(
        [
            "# Lifecycle of a job",
            "",
            "Generated from `holdfast.core.lifecycle` by `make docs`; edit the table there.",
            "",
            "```mermaid",
            "stateDiagram-v2",
            *edges,
            "```",
            "",
            "| trigger | from | to | note |",
            "|---|---|---|---|",
            *rows,
            "",
            f"Terminal and final: {terminal}. Any other move is a bug and raises before anything changes.",
            "A job that is due later is QUEUED with a `not_before`.",
            "",
        ]
    )
