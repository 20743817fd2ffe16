"""One target for a while: Hypothesis edits known inputs until the time is over.

    python -m tests.fuzz.campaign TARGET SECONDS SEED

A failing input is minimised as long as it fails in the same way, and stored. One kind of failure is stored once.
"""

import itertools
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import hypothesis
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.fuzz import corpus
from tests.fuzz.budget import within_budget
from tests.fuzz.strategy import inputs_near, known_inputs, search_settings
from tests.fuzz.target import Target, target

#: How many smaller inputs are tried for a failing one.
_SHRINKS_MAX = 400
#: Inputs of one seed; Hypothesis remembers all of them.
_BATCH = 1_000


class Found(NamedTuple):
    """A finding: the file of the input, and the traceback."""

    path: Path
    failure: str


class Findings:
    """Counts the inputs of one target, and stores one input for each kind of failure."""

    def __init__(self, chosen: Target) -> None:
        self._target = chosen
        self._known: set[str] = set()
        self._found: list[Found] = []
        self._executions = 0

    def try_one(self, data: bytes) -> None:
        """Try one input."""
        self._executions += 1
        failure = failure_of(self._target.fuzz, data)
        if failure and kind_of(failure) not in self._known:
            self._known.add(kind_of(failure))
            path = corpus.keep(self._target.name, smaller(self._target.fuzz, data, kind_of(failure)))
            self._found.append(Found(path, failure))

    def report(self) -> str:
        """The lines that `python -m tests.fuzz` reads."""
        found = "".join(f"found {found.path}\n{found.failure}" for found in self._found)
        return f"{found}executions {self._executions}\n"


def run(chosen: Target, seconds: float, seed: int) -> Findings:
    """Try all known inputs, then new ones for the rest of the time; equal seeds try equal inputs."""
    known, findings, end_s = known_inputs(chosen), Findings(chosen), time.monotonic() + seconds

    def try_in_time(data: bytes) -> None:
        if time.monotonic() < end_s:
            findings.try_one(data)

    for data in known:
        findings.try_one(data)
    for number in itertools.count():
        if time.monotonic() > end_s:
            break
        explore(inputs_near(known), try_in_time, count=_BATCH, seed=f"{seed} {number}")
    return findings


def explore(inputs: st.SearchStrategy[bytes], see: Callable[[bytes], None], *, count: int, seed: object) -> None:
    """Pass this many inputs to a function; the same for equal seeds."""

    @hypothesis.seed(seed)
    @settings(search_settings(count, Phase.generate), derandomize=False)
    @given(inputs)
    def one(data: bytes) -> None:
        see(data)

    one()


def failure_of(fuzz: Callable[[bytes], None], data: bytes) -> str:
    """The traceback of a failing input; empty for one that does not fail."""
    try:
        within_budget(fuzz, data)
    except Exception:  # noqa: BLE001 - every error is a finding
        return traceback.format_exc()
    return ""


def kind_of(failure: str) -> str:
    """The kind of a failure: its type and the line that raised it."""
    places = [line for line in failure.splitlines() if line.startswith("  File ")]
    return f"{places[-1] if places else ''} {failure.rstrip().splitlines()[-1].partition(':')[0]}"


def smaller(fuzz: Callable[[bytes], None], data: bytes, kind: str) -> bytes:
    """The input without parts that are not needed for a failure of this kind.

    Hypothesis shrinks only inputs that its own strategy drew, and this input may be a stored one or one of atheris.
    """
    tries, size = 0, len(data) // 2
    while size and tries < _SHRINKS_MAX:
        at = 0
        while at < len(data) and tries < _SHRINKS_MAX:
            tries += 1
            shorter = data[:at] + data[at + size :]
            failure = failure_of(fuzz, shorter)
            if failure and kind_of(failure) == kind:
                data = shorter
            else:
                at += size
        size //= 2
    return data


if __name__ == "__main__":
    sys.stdout.write(run(target(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])).report())
