"""A real container engine in its own namespaces: its mounts, listeners and processes end with it."""

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from scripts.engines import CONTAINERS
from tests.e2e.wait_until import eventually
from tests.engines import cannot_run, require

# System programs are not in every user's PATH.
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
#: Long enough for a loaded machine; only a command that hangs takes this long.
_COMMAND_S = 300.0
_CGROUPS = Path("/sys/fs/cgroup")
_RELAY = Path(__file__).with_name("relay.py")

# The process ends with its parent, however the parent ends.
_WITH_ME = ("setpriv", "--pdeathsig", "KILL")
# The engine is the first process of its namespaces, which end with it.
_ALONE = (
    *_WITH_ME,
    *("unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "--mount-proc"),
    *("sh", "-c", 'mount -t tmpfs tmpfs /run && ip link set lo up && exec "$@"', "sh"),
)


class _Line(http.client.HTTPConnection):
    """HTTP over the engine's socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("engine", timeout=_COMMAND_S)
        self._path = path

    def connect(self) -> None:
        """Connects to the Unix socket."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self._path))


class Engine:
    """`docker` and `docker-compose`, configured for one engine."""

    def __init__(self, folder: Path, popen: subprocess.Popen[bytes]) -> None:
        self.folder = folder
        self._popen = popen
        self._socket = folder / "engine.sock"
        self._relays: dict[int, subprocess.Popen[bytes]] = {}

    def run(self, *command: str, stdin: Path | None = None, cwd: Path | None = None, **variables: str) -> str:
        """Returns the output of a command; fails with all of its output."""
        done = self.attempt(*command, stdin=stdin, cwd=cwd, **variables)
        said = done.stderr.decode(errors="replace")
        assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}: {said}{done.stdout!r}"
        return done.stdout.decode()

    def attempt(
        self, *command: str, stdin: Path | None = None, cwd: Path | None = None, **variables: str
    ) -> "subprocess.CompletedProcess[bytes]":
        """Returns a completed command, successful or not."""
        with (stdin or Path(os.devnull)).open("rb") as source:
            return subprocess.run(
                command,
                cwd=cwd or self.folder,
                env=self.environment(variables),
                stdin=source,
                capture_output=True,
                timeout=_COMMAND_S,
                check=False,
            )

    def docker(self, *arguments: str, stdin: Path | None = None) -> str:
        return self.run("docker", *arguments, stdin=stdin)

    def ask(self, path: str) -> Any:  # noqa: ANN401 - JSON
        """Returns a response of the engine's API, which is faster than a start of `docker` for repeated queries."""
        with contextlib.closing(_Line(self._socket)) as line:
            line.request("GET", path)
            answer = line.getresponse()
            said = answer.read()
        assert answer.status == http.client.OK, f"{path} returned {answer.status}: {said!r}"
        return json.loads(said)

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Returns the environment of the clients, which takes only PATH from the caller."""
        return {
            "PATH": PATH,
            "HOME": str(self.folder),
            "DOCKER_HOST": f"unix://{self._socket}",
            # The classic builder, which every engine has; the default one of newer clients needs another program.
            "DOCKER_BUILDKIT": "0",
            "COMPOSE_DOCKER_CLI_BUILD": "0",
            **variables,
        }

    def target(self, port: int) -> str:
        """Returns the address under which this process reaches a port that the engine published on loopback."""
        path = self.folder / f"{port}.sock"
        if port not in self._relays:
            inside = (*_WITH_ME, "nsenter", "--target", str(self._first_process()), "--net", "--")
            self._relays[port] = subprocess.Popen([*inside, sys.executable, _RELAY, path, str(port)])
            eventually(lambda: _listens(path), what="the relay")
        return f"unix:{path}"

    def _first_process(self) -> int:
        """Returns the pid of the engine, as seen from outside its namespace."""
        (child,) = Path(f"/proc/{self._popen.pid}/task/{self._popen.pid}/children").read_text().split()
        return int(child)

    def log(self) -> str:
        return (self.folder / "engine.log").read_text(errors="replace")

    def last_words(self) -> str:
        """Returns the last line of the log, which names the reason of its end."""
        return (self.log().strip().splitlines() or ["it logged nothing"])[-1]

    def answers(self) -> bool:
        """Returns whether the engine is up; skips the current test if the engine has ended."""
        if self._popen.poll() is not None:
            cannot_run(CONTAINERS, f"dockerd ended: {self.last_words()}")
        return _listens(self._socket)

    def end(self) -> None:
        """Kills the first process of the namespaces, which ends all others and unmounts everything."""
        with contextlib.suppress(ValueError, OSError, subprocess.TimeoutExpired):
            os.kill(self._first_process(), signal.SIGKILL)
            self._popen.wait(timeout=_COMMAND_S)
        for popen in (self._popen, *self._relays.values()):
            popen.kill()
            popen.wait()


def _listens(path: Path) -> bool:
    """Returns whether a process listens; the socket file exists a moment earlier."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        return True
    return False


@contextlib.contextmanager
def engine_running() -> Iterator[Engine]:
    """Runs an empty engine for a block; skips the current test if no engine can run."""
    require(CONTAINERS)
    # Not the test's own folder: paths of sockets must be short.
    folder = Path(tempfile.mkdtemp(prefix="holdfast-engine-"))
    with (folder / "engine.log").open("wb") as log:
        popen = subprocess.Popen(
            [*_ALONE, *_dockerd(folder)],
            env=os.environ | {"PATH": PATH},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    engine = Engine(folder, popen)
    try:
        eventually(engine.answers, what="the engine's answer")
        yield engine
    finally:
        engine.end()
        _forget(folder)


def _dockerd(folder: Path) -> list[str]:
    # Its temporary data is on the tmpfs mounted there, which is fast and ends with the engine.
    own = [f"--{option}=/run/engine/{option}" for option in ("data-root", "exec-root", "pidfile")]
    return ["dockerd", *own, f"--host=unix://{folder / 'engine.sock'}", f"--cgroup-parent=/{folder.name}"]


def _forget(folder: Path) -> None:
    """Removes what outlives the namespaces: the folder and the cgroups."""
    shutil.rmtree(folder)
    for group in _CGROUPS.glob(f"**/{folder.name}"):
        for path in sorted(group.glob("**/"), reverse=True):
            path.rmdir()
