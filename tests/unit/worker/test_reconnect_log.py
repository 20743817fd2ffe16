"""The log of a worker while its backend cannot be reached."""

import random

import pytest
from structlog.testing import capture_logs

from holdfast.errors import UnavailableError
from holdfast.ports import Introduction, WorkSession
from holdfast.worker.config import WorkerConfig
from holdfast.worker.runtime import Worker


class UnreachableBackend:
    """A backend that cannot be reached, and that stops the worker after `tries` tries."""

    def __init__(self, tries: int) -> None:
        self.tries_left = tries
        self.worker: Worker | None = None

    async def open(self, introduction: Introduction) -> WorkSession:
        self.tries_left -= 1
        if not self.tries_left and self.worker is not None:
            self.worker.stop()
        raise UnavailableError(f"no backend for {introduction.worker_id}")


async def test_long_outage_does_not_fill_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failed tries are logged as warnings at the beginning, and later only when their number has doubled."""
    monkeypatch.setattr(random, "uniform", lambda _low, _high: 0)
    backend = UnreachableBackend(tries=40)
    with capture_logs() as lines:
        backend.worker = Worker(backend, {}, WorkerConfig("w1"))
        await backend.worker.run()
    assert len(lines) == 40
    assert [line["tries"] for line in lines if line["log_level"] == "warning"] == [1, 2, 3, 5, 9, 17, 33]
    assert {line["log_level"] for line in lines} == {"warning", "debug"}
