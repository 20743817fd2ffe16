"""One target for a while: inputs from its seeds and what is kept, changed at random, until the time is over.

    python -m tests.fuzz.running TARGET SECONDS SEED

An input that fails is made smaller as long as it fails in the same way, and kept. One kind of failure is kept once.
"""

import random
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.fuzz import corpus
from tests.fuzz.budget import within_budget
from tests.fuzz.mutation import mutated
from tests.fuzz.target import Target, target

#: How many smaller inputs are tried for one that fails.
_SHRINKS_MAX = 400


class Found(NamedTuple):
    """Something is wrong: the file that keeps the input, and what it leads to."""

    path: Path
    failure: str


class Outcome(NamedTuple):
    """How a run went: inputs tried, and what was found."""

    executions: int
    found: list[Found]

    def told(self) -> str:
        """For whoever started the run."""
        return (
            "".join(f"found {found.path}\n{found.failure}" for found in self.found) + f"executions {self.executions}\n"
        )


def run(chosen: Target, seconds: float, seed: int) -> Outcome:
    """Tries inputs; equal seeds try equal inputs, as many as there is time for."""
    rng = random.Random(seed)
    inputs = [*chosen.seeds, *(path.read_bytes() for path in corpus.kept(chosen.name))]
    known: set[str] = set()
    found: list[Found] = []
    executions, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        data = inputs[executions] if executions < len(inputs) else mutated(rng, inputs)
        executions += 1
        failure = failure_of(chosen.fuzz, data)
        if failure and kind_of(failure) not in known:
            known.add(kind_of(failure))
            found.append(keep(chosen, data, failure))
    return Outcome(executions, found)


def keep(chosen: Target, data: bytes, failure: str) -> Found:
    """Writes down the smallest input that was found to fail in the same way, and says where."""
    return Found(corpus.keep(chosen.name, smaller(chosen.fuzz, data, kind_of(failure))), failure)


def failure_of(fuzz: Callable[[bytes], None], data: bytes) -> str:
    """What an input leads to, as text; nothing if all is well."""
    try:
        within_budget(fuzz, data)
    except Exception:  # noqa: BLE001 - whatever it is, it is a finding
        return traceback.format_exc()
    return ""


def kind_of(failure: str) -> str:
    """Failures are of one kind if they are of one type and come from one line."""
    places = [line for line in failure.splitlines() if line.startswith("  File ")]
    return f"{places[-1] if places else ''} {failure.rstrip().splitlines()[-1].partition(':')[0]}"


def smaller(fuzz: Callable[[bytes], None], data: bytes, kind: str) -> bytes:
    """The input without what is not needed to fail so."""
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
    sys.stdout.write(run(target(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])).told())
