"""A real container engine that lives in namespaces of its own: what it mounts, listens on and starts ends with it."""

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
from tests.e2e.waiting import eventually
from tests.engines import cannot_run, require

# Programs of the system are not in everybody's path.
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
#: Long enough for a loaded machine; only what hangs ever takes this long.
_COMMAND_S = 300.0
_CGROUPS = Path("/sys/fs/cgroup")
_RELAY = Path(__file__).with_name("relay.py")

# Ends with the process that started it, however that ends.
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
        """As everybody is connected who knows the socket."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self._path))


class Engine:
    """`docker` and `docker-compose`, told to use one engine."""

    def __init__(self, folder: Path, popen: subprocess.Popen[bytes]) -> None:
        self.folder = folder
        self._popen = popen
        self._socket = folder / "engine.sock"
        self._relays: dict[int, subprocess.Popen[bytes]] = {}

    def run(self, *command: str, stdin: Path | None = None, cwd: Path | None = None, **variables: str) -> str:
        """What a command prints; fails with everything it said."""
        done = self.attempt(*command, stdin=stdin, cwd=cwd, **variables)
        said = done.stderr.decode(errors="replace")
        assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}: {said}{done.stdout!r}"
        return done.stdout.decode()

    def attempt(
        self, *command: str, stdin: Path | None = None, cwd: Path | None = None, **variables: str
    ) -> "subprocess.CompletedProcess[bytes]":
        """A command that has ended, well or not."""
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
        """What the engine itself answers; whoever asks again and again need not start `docker` each time."""
        with contextlib.closing(_Line(self._socket)) as line:
            line.request("GET", path)
            answer = line.getresponse()
            said = answer.read()
        assert answer.status == http.client.OK, f"{path} was answered with {answer.status}: {said!r}"
        return json.loads(said)

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """That of the clients: nothing of the caller's but the path to programs."""
        return {
            "PATH": PATH,
            "HOME": str(self.folder),
            "DOCKER_HOST": f"unix://{self._socket}",
            # The plain builder, which is in every engine; newer clients have another one and need a program for it.
            "DOCKER_BUILDKIT": "0",
            "COMPOSE_DOCKER_CLI_BUILD": "0",
            **variables,
        }

    def target(self, port: int) -> str:
        """Where this process reaches a port that the engine published on loopback."""
        path = self.folder / f"{port}.sock"
        if port not in self._relays:
            inside = (*_WITH_ME, "nsenter", "--target", str(self._first_process()), "--net", "--")
            self._relays[port] = subprocess.Popen([*inside, sys.executable, _RELAY, path, str(port)])
            eventually(lambda: _listens(path), what="the relay")
        return f"unix:{path}"

    def _first_process(self) -> int:
        """The engine itself, as this side numbers it."""
        (child,) = Path(f"/proc/{self._popen.pid}/task/{self._popen.pid}/children").read_text().split()
        return int(child)

    def log(self) -> str:
        return (self.folder / "engine.log").read_text(errors="replace")

    def last_words(self) -> str:
        """The last line of its log, which says why it ended."""
        return (self.log().strip().splitlines() or ["it logged nothing"])[-1]

    def answers(self) -> bool:
        """Whether it is up; the current test is skipped when it has ended instead."""
        if self._popen.poll() is not None:
            cannot_run(CONTAINERS, f"dockerd ended: {self.last_words()}")
        return _listens(self._socket)

    def end(self) -> None:
        """Ends the first process of the namespaces: it is gone when all of them are, and what they had mounted."""
        with contextlib.suppress(ValueError, OSError, subprocess.TimeoutExpired):
            os.kill(self._first_process(), signal.SIGKILL)
            self._popen.wait(timeout=_COMMAND_S)
        for popen in (self._popen, *self._relays.values()):
            popen.kill()
            popen.wait()


def _listens(path: Path) -> bool:
    """Whether somebody does; the file of a socket is there a moment before."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        return True
    return False


@contextlib.contextmanager
def engine_running() -> Iterator[Engine]:
    """An empty engine that is gone afterwards; the current test is skipped where no engine can run."""
    require(CONTAINERS)
    # Not the test's own folder: names of sockets must be short.
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
    # What is only needed while it lives is in the memory that is mounted there: quick, and gone with it.
    own = [f"--{option}=/run/engine/{option}" for option in ("data-root", "exec-root", "pidfile")]
    return ["dockerd", *own, f"--host=unix://{folder / 'engine.sock'}", f"--cgroup-parent=/{folder.name}"]


def _forget(folder: Path) -> None:
    """Removes what no namespace holds: the folder, and the groups of processes."""
    shutil.rmtree(folder)
    for group in _CGROUPS.glob(f"**/{folder.name}"):
        for path in sorted(group.glob("**/"), reverse=True):
            path.rmdir()
