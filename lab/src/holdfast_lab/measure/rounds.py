"""Order of contestants and runs: contestants take turns, so that a change of the machine's load affects all of them."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

#: Prints a line of progress.
Say = Callable[[str], None]


def orders(contestants: Sequence[T], rounds: int) -> Iterator[tuple[int, Sequence[T]]]:
    """The number of each round and the order of the contestants in it, reversed in every other round."""
    for number in range(rounds):
        yield number, contestants if number % 2 == 0 else contestants[::-1]


def announced(what: str, runs: int, say: Say) -> Iterator[int]:
    """The number of each run, announced before it begins."""
    for run in range(runs):
        say(f"{what}, run {run + 1} of {runs}")
        yield run
