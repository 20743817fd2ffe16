"""What a worker says while nobody answers."""

import random

import pytest
from structlog.testing import capture_logs

from holdfast.errors import UnavailableError
from holdfast.ports import Introduction, WorkSession
from holdfast.worker.config import WorkerConfig
from holdfast.worker.runtime import Worker


class Nobody:
    """A backend that never answers; after so many tries the worker is told to stop."""

    def __init__(self, tries: int) -> None:
        self.tries_left = tries
        self.worker: Worker | None = None

    async def open(self, introduction: Introduction) -> WorkSession:
        self.tries_left -= 1
        if not self.tries_left and self.worker is not None:
            self.worker.stop()
        raise UnavailableError(f"nobody is there for {introduction.worker_id}")


async def test_long_outage_does_not_fill_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first tries are warned of, then only each that doubles their number."""
    monkeypatch.setattr(random, "uniform", lambda _low, _high: 0)
    nobody = Nobody(tries=40)
    with capture_logs() as lines:
        nobody.worker = Worker(nobody, {}, WorkerConfig("w1"))
        await nobody.worker.run()
    assert len(lines) == 40
    assert [line["tries"] for line in lines if line["log_level"] == "warning"] == [1, 2, 3, 5, 9, 17, 33]
    assert {line["log_level"] for line in lines} == {"warning", "debug"}
