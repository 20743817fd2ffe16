"""Runs the examples of a document in order, in one folder, and checks their output.

A fenced block marked `python` is run in one interpreter per document, so that later blocks see the names of earlier
ones; if its first line is a comment with a file name, the block is written to that file instead. The comment after
`print(...)  # text` is the expected output. In a block marked `console`, lines after `$ ` are commands: a command with
`&` at the end stays in the background once it is ready, `# exit 1` gives the expected exit status, and the lines below
a command are its expected output. In expected output, `...` matches any text.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.e2e.fleet import clean_environment, stable_port
from tests.e2e.wait_until import DEADLINE_S, pause

PORT = "50051"
HTTP_PORT = "8080"
_FENCE = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w/.-]+\.(?:py|toml))\n")
_PRINTED = re.compile(r"^\s*print\(.*\)  # (.+)$", re.MULTILINE)
_STATUS = re.compile(r"\s+# exit (\d+)$")
_SESSION = """
import contextlib, io, json, sys, traceback, types
sys.path.insert(0, "")
module = types.ModuleType("__main__")
sys.modules["__main__"] = module
for line in sys.stdin:
    block, out, error = json.loads(line), io.StringIO(), ""
    try:
        with contextlib.redirect_stdout(out):
            exec(compile(block["source"], block["place"], "exec"), module.__dict__)
    except BaseException:
        error = traceback.format_exc()
    print(json.dumps({"out": out.getvalue(), "error": error}), flush=True)
"""


class Block(NamedTuple):
    """One example with the line of the document at which it begins."""

    language: str
    source: str
    line: int


class ExampleError(AssertionError):
    """An example that does not do what its document says."""


def blocks_of(text: str) -> list[Block]:
    """Returns the runnable examples of a document."""
    return [Block(found[1], found[2], text[: found.start()].count("\n") + 2) for found in _FENCE.finditer(text)]


class Reader:
    """Runs every example of one document in one folder, as a reader would paste them."""

    def __init__(self, document: Path, folder: Path) -> None:
        self._document = document
        self._folder = folder
        self._port, self._http_port = str(stable_port()), str(stable_port())
        self._session: subprocess.Popen[str] | None = None
        self._background: list[subprocess.Popen[bytes]] = []
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        ports = {"HOLDFAST_PORT": self._port, "HOLDFAST_HTTP_PORT": self._http_port}
        self._environment = clean_environment({"PATH": path, "COLUMNS": "160", **ports})

    def run(self) -> int:
        """Returns the number of examples; raises ExampleError at the first example that fails."""
        blocks = blocks_of(self._document.read_text().replace(PORT, self._port).replace(HTTP_PORT, self._http_port))
        for block in blocks:
            if block.language == "console":
                self._type_in(block)
            elif file := FILE.match(block.source):
                self._save(file[1], block)
            else:
                self._run_python(block)
        return len(blocks)

    def end(self) -> None:
        """Ends every process: first the background commands of the examples, then the interpreter."""
        for process in self._background:
            process.terminate()
        for process in self._background:
            _await_end(process)
        if self._session is not None:
            assert self._session.stdin is not None
            assert self._session.stdout is not None
            self._session.stdin.close()
            _await_end(self._session)
            self._session.stdout.close()

    def _save(self, name: str, block: Block) -> None:
        try:
            compile(block.source, name, "exec") if name.endswith(".py") else None
        except SyntaxError as error:
            raise self._wrong(block, str(error)) from None
        (self._folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self._folder / name).write_text(block.source)

    def _run_python(self, block: Block) -> None:
        session = self._python()
        place = f"{self._document.name}:{block.line}"
        assert session.stdin is not None
        assert session.stdout is not None
        print(json.dumps({"source": block.source, "place": place}), file=session.stdin, flush=True)
        answer = json.loads(session.stdout.readline() or '{"out": "", "error": "the interpreter has ended"}')
        if answer["error"]:
            raise self._wrong(block, answer["error"])
        self._compare(block, _PRINTED.findall(block.source), answer["out"])

    def _python(self) -> subprocess.Popen[str]:
        if self._session is None:
            self._session = subprocess.Popen(
                [sys.executable, "-c", _SESSION],
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        return self._session

    def _type_in(self, block: Block) -> None:
        for command, expected in _commands(block.source):
            if command.endswith("&"):
                self._leave_running(block, command.removesuffix("&"))
            else:
                self._run_command(block, command, expected)

    def _run_command(self, block: Block, command: str, expected: list[str]) -> None:
        status = _STATUS.search(command)
        done = subprocess.run(
            ["/bin/bash", "-c", _STATUS.sub("", command)],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        if done.returncode != int(status[1] if status else 0):
            raise self._wrong(block, f"`{command}` ended with {done.returncode}:\n{done.stdout}")
        self._compare(block, expected, done.stdout)

    def _leave_running(self, block: Block, command: str) -> None:
        out = self._folder / f"background-{len(self._background)}"
        with out.open("wb") as file:
            process = subprocess.Popen(
                ["/bin/bash", "-c", f"exec {command}"],
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        self._background.append(process)
        end_s = time.monotonic() + DEADLINE_S
        while '"ready"' not in out.read_text():
            if process.poll() is not None or time.monotonic() > end_s:
                raise self._wrong(block, f"`{command}` does not get ready:\n{out.read_text()}")
            pause()

    def _compare(self, block: Block, expected: list[str], printed: str) -> None:
        lines = [line.strip() for line in printed.splitlines()]
        for text in expected:
            pattern = re.compile(".*".join(re.escape(part) for part in text.strip().split("...")))
            if not any(pattern.fullmatch(line) for line in lines):
                raise self._wrong(block, f"expected a line {text.strip()!r}, got:\n{printed}")

    def _wrong(self, block: Block, problem: str) -> ExampleError:
        return ExampleError(f"{self._document.name}, line {block.line}: {problem}")


def _commands(source: str) -> Iterator[tuple[str, list[str]]]:
    """Yields each command with its expected output lines."""
    for part in re.split(r"^\$ ", source.replace("\\\n", ""), flags=re.MULTILINE)[1:]:
        command, *shown = part.splitlines()
        yield command.strip(), [line for line in shown if line.strip()]


def _await_end(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    try:
        process.wait(DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def reader_of(document: Path, folder: Path) -> Iterator[Reader]:
    """Yields a reader and ends its processes on exit."""
    reader = Reader(document, folder)
    try:
        yield reader
    finally:
        reader.end()
