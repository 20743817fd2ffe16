"""The six services of one topology, the log that they share, and the one who kills them."""

import contextlib
import json
import os
import random
import signal
import socket
from collections import Counter
from pathlib import Path

from tests.e2e.fleet import Fleet, Program, stable_port
from tests.e2e.waiting import eventually, pause

ROLES = ("gateway", "job", "queue", "coordinator", "result", "worker")


def stable_ports(count: int) -> int:
    """The first of so many ports in a row that stay free."""
    while True:
        first = stable_port()
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first


class Log:
    """What the processes of one program log, read once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_bytes = 0
        self.ready: Counter[str] = Counter()
        self.events: Counter[str] = Counter()
        self.strange: list[str] = []

    def read(self) -> None:
        """What came since the last time."""
        with self._path.open("rb") as file:
            file.seek(self._read_bytes)
            whole = file.read().rpartition(b"\n")[0]
        self._read_bytes += len(whole) + bool(whole)
        for line in whole.splitlines():
            if not line.startswith(b"{"):
                self.strange.append(line.decode(errors="replace"))
                continue
            record = json.loads(line)
            self.events[record["event"]] += 1
            if record["event"] == "role_ready":
                self.ready[record["role"]] += 1


class Siege:
    """Kills one role after the other; each is killed again only once it was ready again."""

    def __init__(self, fleet: Fleet, data: Path, draw: random.Random) -> None:
        self._draw = draw
        arguments = ("--data", str(data), "--heartbeat-ms", "200", "--worker-timeout-ms", "1500")
        port = str(stable_ports(5))
        self.program: Program = fleet.start(
            *("up", "--topology", "microservices", "--port", port, *arguments), INTERNAL_TIMEOUT_MS="1000"
        )
        self.target: str = self.program.ready()["grpc"]
        self.log = Log(fleet.folder / f"{len(fleet.programs) - 1}.log")
        self.kills: Counter[str] = Counter()
        self.kills_of_starting: Counter[str] = Counter()
        self._expected: Counter[str] = Counter(ROLES)

    def pid(self, role: str) -> int:
        """The process of a role; 0 while there is none."""
        for pid in self.program.children():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if b"service" in words and words[words.index(b"service") + 1] == role.encode():
                    return pid
        return 0

    def is_ready(self, role: str) -> bool:
        """Whether the last one that was started is ready."""
        self.log.read()
        return self.log.ready[role] >= self._expected[role]

    def wait_for(self, role: str) -> None:
        eventually(lambda: self.is_ready(role), what=f"another {role}")

    def kill(self, role: str) -> None:
        """Once while it serves, and perhaps once more while the next one starts."""
        self.wait_for(role)
        old = eventually(lambda: self.pid(role), what=f"a process of {role}")  # 0 would be everybody here
        os.kill(old, signal.SIGKILL)
        self.kills[role] += 1
        self._expected[role] += 1
        if self._draw.random() < 0.2:
            self._kill_starting(role, old)

    def _kill_starting(self, role: str, old: int) -> None:
        new = eventually(lambda: self.pid(role), lambda pid: pid not in (0, old), what=f"the next {role}")
        pause(self._draw.uniform(0, 1))
        if not self.is_ready(role):
            with contextlib.suppress(ProcessLookupError):
                os.kill(new, signal.SIGKILL)
                self.kills_of_starting[role] += 1
