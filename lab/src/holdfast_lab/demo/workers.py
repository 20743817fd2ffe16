"""The worker processes of the demo, which end with the block that started them."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from holdfast.process.child_command import child_command
from holdfast_lab.demo import DATA_VARIABLE

_COMMAND = child_command("holdfast", "worker", "-A", "holdfast_lab.demo.jobs:app", "-c", "4", "--lifeline")
_PATIENCE_S = 20


@contextmanager
def workers(names: Sequence[str], folder: Path, data: Path) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """Running workers by name; none is left after the block."""
    started: dict[str, subprocess.Popen[str]] = {}
    try:
        for name in names:
            started[name] = _start(name, folder / f"{name}.log", data)
        for name, process in started.items():
            _await_ready(process, folder / f"{name}.log")
        yield started
    except BaseException:
        for process in started.values():
            process.kill()  # after a Ctrl-C, running jobs are not awaited
        raise
    finally:
        _end(list(started.values()))


def _start(name: str, log: Path, data: Path) -> subprocess.Popen[str]:
    # A session of its own: a Ctrl-C reaches the demo alone, which then ends its workers. The lifeline, the
    # standard input, ends the worker if the demo is killed.
    with log.open("w") as errors:
        return subprocess.Popen(
            [*_COMMAND, "--worker-id", name],
            env=_environment(data),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )


def _environment(data: Path) -> dict[str, str]:
    """The environment without the user's settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return {**kept, DATA_VARIABLE: str(data)}


def _await_ready(process: subprocess.Popen[str], log: Path) -> None:
    assert process.stdout is not None
    if not process.stdout.readline():
        raise RuntimeError(f"a worker ended before it was ready:\n{log.read_text()}")


def _end(processes: Sequence[subprocess.Popen[str]]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()
