"""A `holdfast` program with probes: `python -m holdfast_lab.trace.program ROLE FILE ARGUMENTS...`."""

import atexit
import sys
from pathlib import Path

from holdfast_lab.trace.probes import ROLES, Recorder


def main() -> None:
    """Install the probes of a role, and run the program; the marks are written when it ends."""
    role, path, *arguments = sys.argv[1:]
    recorder = Recorder(ROLES[role])
    atexit.register(recorder.write, Path(path))
    sys.argv = ["holdfast", *arguments]
    from holdfast.cli import main as holdfast  # noqa: PLC0415 - after the probes were installed

    sys.exit(holdfast())


if __name__ == "__main__":
    main()
