"""The worker processes of the demo, which end with the block that started them."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from holdfast.process.child_command import child_command
from holdfast_lab.demo import DATA_VARIABLE
from holdfast_lab.measure.processes import ChildError, child, default_environment, next_line

_COMMAND = child_command("holdfast", "worker", "-A", "holdfast_lab.demo.jobs:app", "-c", "4", "--lifeline")


@contextmanager
def workers(names: Sequence[str], folder: Path, data: Path) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """Running workers by name; none is left after the block."""
    with ExitStack() as stack:
        started = {name: stack.enter_context(_worker(name, folder / f"{name}.log", data)) for name in names}
        try:
            for name, process in started.items():
                _await_ready(process, folder / f"{name}.log")
            yield started
        except BaseException:
            for process in started.values():
                process.kill()  # after a Ctrl-C, running jobs are not awaited
            raise


@contextmanager
def _worker(name: str, log: Path, data: Path) -> Iterator[subprocess.Popen[str]]:
    """A worker whose lifeline, the standard input, ends it if the demo is killed."""
    with (
        log.open("wb") as errors,
        child(
            [*_COMMAND, "--worker-id", name],
            base=default_environment(),
            environment={DATA_VARIABLE: str(data)},
            stdin=subprocess.PIPE,
            errors=errors,
        ) as process,
    ):
        yield process


def _await_ready(process: subprocess.Popen[str], log: Path) -> None:
    try:
        next_line(process)
    except ChildError:
        raise RuntimeError(f"a worker ended before it was ready:\n{log.read_text()}") from None
