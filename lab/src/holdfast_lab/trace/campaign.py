"""Traces of a lone submit and of a lone job over each link: the processes."""

import contextlib
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from holdfast_lab.measure.processes import URL_VARIABLE, child, module, ready_line
from holdfast_lab.trace.probes import read_marks
from holdfast_lab.trace.report import Hop, Mark, Traced, path_of

SUBMIT, JOB = "submit", "job"


def traced(calls: int, say: Callable[[str], None]) -> list[Traced]:
    """Traces every link, with fresh processes for each."""
    found = []
    for link, name in (
        ("in one process", "embedded"),
        ("over the socket of a directory that another process serves", "socket"),
        ("over holdfast:// on this machine", "tcp"),
    ):
        for kind in (SUBMIT, JOB):
            if name == "embedded" and kind == JOB:
                continue
            say(f"tracing a lone {kind} {link}")
            found.append(Traced(link, kind, _trace(name, kind, calls)))
    return found


def _trace(link: str, kind: str, calls: int) -> list[Hop]:
    with tempfile.TemporaryDirectory(prefix="holdfast-trace-") as temporary:
        folder = Path(temporary)
        with contextlib.ExitStack() as stack:
            url = str(folder / "data")
            if link != "embedded":
                server = stack.enter_context(_program("server", folder, *_server_options(folder)))
                if link == "tcp":
                    url = f"holdfast://{server['grpc']}"
                if kind == JOB:
                    app = ("-A", "holdfast_lab.bench.noop_app:app", "--log-level", "warning")
                    stack.enter_context(_program("worker", folder, "worker", *app, url=url))
            command = module("holdfast_lab.trace.load", f"{link}-{kind}", str(calls), str(folder / "client.json"))
            printed = stack.enter_context(child(command, environment={URL_VARIABLE: url})).communicate()[0]
        marks: list[Mark] = []
        for path in folder.glob("*.json"):
            marks += read_marks(path)
        return path_of([(begun, ended) for begun, ended in json.loads(printed)], marks)


def _server_options(folder: Path) -> tuple[str, ...]:
    return ("server", "--data", str(folder / "data"), "--port", "0", "--http-port", "0", "--log-level", "warning")


@contextlib.contextmanager
def _program(role: str, folder: Path, *arguments: str, url: str = "") -> Iterator[dict[str, str]]:
    """A traced program that is ready; its marks are written when it ends."""
    command = module("holdfast_lab.trace.program", role, str(folder / f"{role}.json"), *arguments)
    with child(command, environment={URL_VARIABLE: url}, errors=subprocess.DEVNULL) as process:
        yield ready_line(process)
