"""`holdfast job submit --wait` and `holdfast job result` while the job waits."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.cli.job import _ended
from holdfast.core.lifecycle import State
from holdfast.errors import DeadlineExceededError
from holdfast.sdk import worker_check


class Waiting:
    """A client whose job never ends, for this reason."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    async def get(self, _: str) -> SimpleNamespace:
        return SimpleNamespace(state=State.QUEUED)

    async def settled(self, _: str) -> None:
        await asyncio.Event().wait()

    async def explain(self, _: str) -> SimpleNamespace:
        return SimpleNamespace(reason=self._reason, sentence="the sentence")


@pytest.mark.parametrize(
    ("reason", "said"),
    [("NO_WORKER", "holdfast: the job waits: the sentence\n"), ("NOT_DUE", "")],
)
async def test_job_that_no_worker_can_run_is_explained_before_the_timeout(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], reason: str, said: str
) -> None:
    """After a few seconds the command says once why no worker runs the job, and continues to wait."""
    monkeypatch.setattr(worker_check, "SERVED_S", 0.01)
    client: Any = Waiting(reason)
    with pytest.raises(DeadlineExceededError, match="has not ended yet: the sentence"):
        await _ended(client, "some-id", time.monotonic() + 0.1)
    assert capsys.readouterr().err == said
