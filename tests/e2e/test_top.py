"""`holdfast top` with a real server: as plain lines, as JSON, and on a terminal."""

import fcntl
import json
import os
import pty
import select
import signal
import struct
import termios
from pathlib import Path
from typing import Any, Self

import pytest

from holdfast.proto import taskqueue_public_pb2 as public
from tests.e2e.app_jobs import app_worker, submit
from tests.e2e.fleet import Fleet, stable_port
from tests.e2e.preloaded_prompt import LoadedProgram, LoadedShell
from tests.e2e.wait_until import DEADLINE_S, eventually


@pytest.fixture
def fleet(loaded_fleet: Fleet) -> Fleet:
    """A fleet whose processes are forked from the preloaded program."""
    return loaded_fleet


def test_top_is_printed_once_where_there_is_no_terminal(loaded: LoadedProgram, fleet: Fleet, tmp_path: Path) -> None:
    """Without a terminal `holdfast top` prints waiting jobs, the missing worker and failing types as plain lines."""
    _, wire = fleet.server()
    worker = app_worker(fleet, wire)
    for job_id in submit(wire, "thread.bad", count=3):
        wire.wait_for(job_id, public.FAILED)
    worker.stop()
    submit(wire, "thread.echo", count=2)
    shell = LoadedShell(loaded, tmp_path, wire.target)
    done = eventually(
        lambda: shell.run("top", "--interval", "0.2"),
        lambda done: "! 2 jobs could run, but no worker is connected" in done.stdout.splitlines(),
        what="a server that knows that its worker is gone",
    )
    assert done.returncode == 0, done.stderr
    made = done.stdout.splitlines()
    assert made[0] == f"CRITICAL {wire.target}"
    assert any(line.startswith("failing thread.bad 3 ") for line in made)
    seen = json.loads(shell.run("top", "--json", "--interval", "0.2").stdout)
    assert seen["states"]["FAILED"] == 3
    assert seen["queues"][0]["ready"] == 2
    assert seen["rates_per_s"]["done"] == 0


PARENTS = """
import time
from pathlib import Path

from holdfast import Holdfast

app = Holdfast("./data")


@app.job
def child() -> None: ...


@app.job
def parent() -> None:
    while not Path("all-parents-run").exists():
        time.sleep(0.01)
    child.submit().result()
"""


def test_top_tells_of_slots_whose_jobs_wait_for_jobs(loaded: LoadedProgram, fleet: Fleet) -> None:
    """`holdfast top` reports that all slots are busy and no job ends if parents wait for their children."""
    (fleet.folder / "family.py").write_text(PARENTS)
    fleet.worker("./data", "-A", "family:app", "--slots", "2", "--drain-ms", "0")
    shell = LoadedShell(loaded, fleet.folder, "data")
    for _ in range(2):
        assert shell.run("job", "submit", "parent").returncode == 0

    def seen(interval_s: str = "0.2") -> dict[str, Any]:
        told: dict[str, Any] = json.loads(shell.run("top", "--json", "--interval", interval_s).stdout)
        return told

    eventually(seen, lambda one: one["workers"][0]["running"] == 2, what="two parents that run")
    (fleet.folder / "all-parents-run").touch()
    full = eventually(seen, lambda one: one["queues"] and one["queues"][0]["ready"] == 2 and one["findings"])
    assert full["health"] == "busy"
    assert full["findings"][0]["text"].startswith("all 2 slots are busy and 2 jobs wait, the oldest for ")
    stalled = seen("6")
    assert stalled["health"] == "warning"
    assert "no job has ended in the last" in stalled["findings"][0]["text"]


def test_top_on_a_terminal_obeys_keys_and_waits_for_its_server(
    loaded: LoadedProgram, fleet: Fleet, tmp_path: Path
) -> None:
    """On a terminal `holdfast top` pauses, reconnects after a restart of the server, and restores the screen."""
    port = stable_port()
    server, wire = fleet.server(port=port)
    submit(wire, "thread.echo", count=2)
    with Terminal(loaded, tmp_path, "top", "--connect", wire.target, "--interval", "0.2") as terminal:
        terminal.await_text("QUEUE")
        terminal.press("p")
        terminal.await_text("paused; p continues")
        terminal.press("p")
        server.kill()
        terminal.await_text("no connection")
        fleet.server(port=port)
        terminal.await_text("q quits")
        terminal.resize(60, 12)
        terminal.await_text("\x1b[H")
        terminal.press("q")
        assert terminal.end() == 0
        assert terminal.text.count("\x1b[?1049h") == terminal.text.count("\x1b[?1049l") == 1


def test_top_that_is_ended_leaves_the_terminal_as_it_was(loaded: LoadedProgram, fleet: Fleet, tmp_path: Path) -> None:
    """`holdfast top` restores the screen on SIGTERM, and prints plain lines once on a dumb terminal."""
    _, wire = fleet.server()
    with Terminal(loaded, tmp_path, "top", "--connect", wire.target, "--interval", "0.2") as terminal:
        terminal.await_text("q quits")
        terminal.signal(signal.SIGTERM)
        assert terminal.end() == 128 + signal.SIGTERM
        assert terminal.text.count("\x1b[?1049l") == 1
        assert "Traceback" not in terminal.text
    with Terminal(loaded, tmp_path, "top", "--connect", wire.target, "--interval", "0.2", kind="dumb") as terminal:
        assert terminal.end() == 0
        assert "waiting: 0" in terminal.text
        assert "\x1b" not in terminal.text


class Terminal:
    """A program on a terminal of its own, with typed input."""

    def __init__(self, program: LoadedProgram, folder: Path, *arguments: str, kind: str = "xterm") -> None:
        self._ours, theirs = pty.openpty()
        self.resize(120, 40)
        self._process = program.start(arguments, (theirs,) * 3, {"TERM": kind}, folder, has_session=True)
        os.close(theirs)
        self.text = ""
        self._seen = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._ours)

    def press(self, keys: str) -> None:
        """Types keys; `await_text` then searches only text that follows."""
        self._seen = len(self.text)
        os.write(self._ours, keys.encode())

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the program."""
        self._process.send_signal(number)

    def resize(self, columns: int, rows: int) -> None:
        """Changes the size of the terminal."""
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def await_text(self, text: str) -> None:
        """Reads until the text appears."""
        while text not in self.text[self._seen :]:
            assert self._read(), f"the program ended without printing {text!r}: {self.text[-2_000:]!r}"
        self._seen = self.text.rindex(text) + len(text)

    def end(self) -> int:
        """Reads to the end of the output and returns the exit status."""
        while self._read():
            pass
        return self._process.wait(DEADLINE_S)

    def _read(self) -> bool:
        ready, _, _ = select.select([self._ours], [], [], DEADLINE_S)
        try:
            part = os.read(self._ours, 65_536) if ready else b""
        except OSError:  # EIO: the other end of the terminal is closed
            return False
        self.text += part.decode(errors="replace")
        return bool(part)


def test_top_without_a_server_names_the_address(loaded: LoadedProgram, tmp_path: Path) -> None:
    """`holdfast top` without a server exits with a message that names the address."""
    done = LoadedShell(loaded, tmp_path, "127.0.0.1:1").run("top")
    assert done.returncode != 0
    assert "127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.stderr
