"""The worker processes of the demo: started, killed, and ended with the block that started them."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from holdfast.lab.demo import DATA_VARIABLE
from holdfast.process.child_command import child_command

_COMMAND = child_command("holdfast", "worker", "-A", "holdfast.lab.demo.jobs:app", "-c", "4", "--lifeline")
_PATIENCE_S = 20


@contextmanager
def workers(names: Sequence[str], folder: Path, data: Path) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """Workers by name, all of them ready; none is left after the block, however it ends."""
    started: dict[str, subprocess.Popen[str]] = {}
    try:
        for name in names:
            started[name] = _start(name, folder / f"{name}.log", data)
        for name, process in started.items():
            _await_ready(process, folder / f"{name}.log")
        yield started
    except BaseException:
        for process in started.values():
            process.kill()  # nobody waits for jobs after a Ctrl-C
        raise
    finally:
        _end(list(started.values()))


def _start(name: str, log: Path, data: Path) -> subprocess.Popen[str]:
    # A session of its own: a Ctrl-C is for the demo, which then ends its workers in good order. The lifeline, its
    # standard input, ends a worker whose demo was itself killed.
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
    """The settings of whoever runs the demo are not for it."""
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
