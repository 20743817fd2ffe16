"""Runs the demo in a directory that is gone afterwards; exits 0 only if every job ended as it must."""

import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType

from rich.console import Console

from holdfast.errors import HoldfastError
from holdfast.lab.demo import DATA_VARIABLE

_INTERRUPTED_STATUS = 130


def main() -> int:
    """The exit status."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    console = Console()
    start_s = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
            wrong = _run(console, Path(folder))
    except KeyboardInterrupt:
        console.print("\nInterrupted: the workers are ended and the directory is gone.", highlight=False)
        return _INTERRUPTED_STATUS
    except (HoldfastError, OSError, RuntimeError) as error:
        wrong = [f"the demo could not go on: {error}"]
    for problem in wrong:
        console.print(f"NOT as expected: {problem}", highlight=False, markup=False, soft_wrap=True)
    if not wrong:
        console.print(f"Everything is as expected, after {time.monotonic() - start_s:.0f} s.", highlight=False)
        console.print("Now your own jobs: docs/tutorial.md.", highlight=False)
    return 1 if wrong else 0


def _run(console: Console, folder: Path) -> list[str]:
    os.environ[DATA_VARIABLE] = str(folder / "data")
    from holdfast.lab.demo.show import run  # noqa: PLC0415 - its app reads the variable when it is imported

    return run(console, folder)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Once is enough: a second Ctrl-C must not disturb the tidying up."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
