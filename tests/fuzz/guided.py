"""One target under atheris, which is guided by the coverage of each input.

    python -m tests.fuzz.guided TARGET SECONDS SEED

It is a process of its own, because atheris takes over the process that it runs in and never returns.
"""

import importlib
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import atheris

from tests.fuzz.campaign import Findings
from tests.fuzz.strategy import known_inputs
from tests.fuzz.target import Target

_LENGTH_MAX = 1 << 16
#: The budget of an input is processor time; this limit is wall time, of which a busy machine needs more.
_PATIENCE_S = 600


def main(name: str, seconds: float, seed: int) -> None:
    """Try inputs for this long, then end the process."""
    with atheris.instrument_imports(include=["holdfast"]):
        # Imported here for the first time, so that all modules of the product are instrumented.
        chosen: Target = importlib.import_module("tests.fuzz.target").target(name)
    folder = Path(tempfile.mkdtemp(prefix="holdfast-fuzz-"))
    for number, data in enumerate(known_inputs(chosen)):
        (folder / str(number)).write_bytes(data)
    findings, end_s = Findings(chosen), time.monotonic() + seconds

    def try_one(data: bytes) -> None:
        findings.try_one(data)
        if time.monotonic() > end_s:
            sys.stdout.write(findings.report())
            sys.stdout.flush()
            shutil.rmtree(folder)
            os._exit(0)

    options = [
        f"-seed={seed}",
        f"-max_len={_LENGTH_MAX}",
        "-rss_limit_mb=2048",
        f"-timeout={_PATIENCE_S}",
        "-verbosity=0",
    ]
    atheris.Setup([sys.argv[0], *options, f"-artifact_prefix={folder}/", str(folder)], try_one)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
