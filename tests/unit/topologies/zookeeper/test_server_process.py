"""How long a server of a private ensemble may be stuck until it is restarted."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from holdfast.topologies.zookeeper.server_process import ZooKeeperServer


class StuckProcess:
    """A process that runs until it is killed; each wait takes its time on the test's clock."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.lives: list[float] = []
        self._begun_s = 0.0
        self._is_killed = False

    def wait(self, timeout: float) -> None:
        """Ends at once if it was killed; otherwise not in time."""
        if self._is_killed:
            self._is_killed = False
            self._begun_s = self.now_s
            return
        self.now_s += timeout
        raise subprocess.TimeoutExpired("java", timeout)

    def kill(self) -> None:
        """Notes how long it lived."""
        self.lives.append(self.now_s - self._begun_s)
        self._is_killed = True


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> StuckProcess:
    """A process that never serves."""
    made = StuckProcess()
    monkeypatch.setattr("holdfast.topologies.zookeeper.server_process.time.monotonic", lambda: made.now_s)
    return made


def stuck(server: ZooKeeperServer, process: Any, times: int) -> None:  # noqa: ANN401 - stands in for a process
    """Watches the server until it was killed some times."""
    for _ in range(times):
        server._wait(lambda: True, process)


def test_time_for_a_stuck_server_doubles_until_it_serves(
    tmp_path: Path, process: StuckProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that was stuck gets twice the time after its restart, up to a limit, until it has served."""
    server = ZooKeeperServer(tmp_path, 1, {}, tmp_path)
    monkeypatch.setattr(server, "mode", lambda: "")
    stuck(server, process, 6)
    assert process.lives == [35.0, 65.0, 125.0, 245.0, 485.0, 485.0]
    modes = iter(["follower"])
    monkeypatch.setattr(server, "mode", lambda: next(modes, ""))
    stuck(server, process, 1)
    assert process.lives[-1] == 40.0


def test_server_is_left_alone_while_no_other_serves(
    tmp_path: Path, process: StuckProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart would not help a server that waits for the others."""
    server = ZooKeeperServer(tmp_path, 1, {}, tmp_path)
    monkeypatch.setattr(server, "mode", lambda: "")
    others = iter([False] * 20)
    server._wait(lambda: next(others, True), process)  # type: ignore[arg-type]  # stands in for a process
    assert len(process.lives) == 1
    assert process.lives[0] > 30.0 + 19 * 5.0
