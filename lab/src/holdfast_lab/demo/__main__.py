"""Run the demo in a temporary directory; the exit status is 0 only if every job ended as required."""

import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType

from rich.console import Console

from holdfast.errors import HoldfastError
from holdfast_lab.demo import DATA_VARIABLE

_INTERRUPTED_STATUS = 130


def main() -> int:
    """Run the demo and return the exit status."""
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
        wrong = [f"the demo failed: {error}"]
    for problem in wrong:
        console.print(f"NOT as expected: {problem}", highlight=False, markup=False, soft_wrap=True)
    if not wrong:
        console.print(f"Everything is as expected, after {time.monotonic() - start_s:.0f} s.", highlight=False)
        console.print("Now your own jobs: docs/tutorial.md.", highlight=False)
    return 1 if wrong else 0


def _run(console: Console, folder: Path) -> list[str]:
    os.environ[DATA_VARIABLE] = str(folder / "data")
    from holdfast_lab.demo.scenario import run  # noqa: PLC0415 - its app reads the variable when it is imported

    return run(console, folder)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Ignore further signals: a second Ctrl-C must not interrupt the cleanup."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
