"""One target under atheris, which looks at what each input reaches and goes on from those that reach something new.

    python -m tests.fuzz.guided TARGET SECONDS SEED

It is a process of its own, because atheris takes over
the process that it runs in and never gives it back.
"""

import importlib
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import atheris

from tests.fuzz import corpus
from tests.fuzz.running import Found, Outcome, failure_of, keep, kind_of
from tests.fuzz.target import Target

#: What is longer is tried by the other engine.
_LENGTH_MAX = 4_096
#: The budget of an input is processor time; this one is of the clock on the wall, which a busy machine uses up, too.
_PATIENCE_S = 600


class _Watch:
    """Tries what it is given until the time is over, then ends the process."""

    def __init__(self, target: Target, seconds: float, folder: Path) -> None:
        self._target = target
        self._end = time.monotonic() + seconds
        self._folder = folder
        self._known: set[str] = set()
        self._found: list[Found] = []
        self._executions = 0

    def one(self, data: bytes) -> None:
        """One input."""
        self._executions += 1
        failure = failure_of(self._target.fuzz, data)
        if failure and kind_of(failure) not in self._known:
            self._known.add(kind_of(failure))
            self._found.append(keep(self._target, data, failure))
        if time.monotonic() > self._end:
            sys.stdout.write(Outcome(self._executions, self._found).told())
            sys.stdout.flush()
            shutil.rmtree(self._folder)
            os._exit(0)


def main(name: str, seconds: float, seed: int) -> None:
    """Never returns."""
    with atheris.instrument_imports(include=["holdfast"]):
        # Imported here for the first time, so that all of the product that it uses is instrumented.
        chosen: Target = importlib.import_module("tests.fuzz.target").target(name)
    folder = Path(tempfile.mkdtemp(prefix="holdfast-fuzz-"))
    for number, data in enumerate([*chosen.seeds, *(path.read_bytes() for path in corpus.kept(name))]):
        if len(data) <= _LENGTH_MAX:
            (folder / str(number)).write_bytes(data)
    options = [
        f"-seed={seed}",
        f"-max_len={_LENGTH_MAX}",
        "-rss_limit_mb=2048",
        f"-timeout={_PATIENCE_S}",
        "-verbosity=0",
    ]
    atheris.Setup(
        [sys.argv[0], *options, f"-artifact_prefix={folder}/", str(folder)], _Watch(chosen, seconds, folder).one
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
