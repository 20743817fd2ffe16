"""The outbox of outcomes: sends them to the store in batches, in order, and repeats until the store has replied."""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence

from holdfast import limits
from holdfast.core.commands import ReportRow
from holdfast.errors import HoldfastError
from holdfast.topologies.pipeline.backend.role_loops import StopSignal
from holdfast.topologies.pipeline.backend.store import LeaseStore

_FIRST_S = 0.1
_DELAY_S_MAX = 2.0

#: The id of a report, and one of its rows.
Numbered = tuple[int, ReportRow]


class OutcomeOutbox:
    """The outcomes without a reply. `answered` receives each row, with the reason if it was refused."""

    def __init__(
        self,
        runs: LeaseStore,
        worker: str,
        answered: Callable[[Numbered, str], None],
        missed: Callable[[HoldfastError], None],
    ) -> None:
        self._runs = runs
        self._worker = worker
        self._answered = answered
        self._missed = missed
        self._rows: deque[Numbered] = deque()
        self._stirred = asyncio.Event()
        self._stop_signal = StopSignal()

    def add(self, report_id: int, rows: Sequence[ReportRow]) -> None:
        """Adds rows to the next batch."""
        self._rows.extend((report_id, row) for row in rows)
        self._stirred.set()

    def end(self) -> None:
        """Ends `run` after the batch in progress; no other batch is sent."""
        self._stop_signal.begin()
        self._stirred.set()

    async def run(self) -> None:
        """Sends reports until `end`; raises an error that is not retryable."""
        while not self._stop_signal.is_on:
            self._stirred.clear()
            while not self._stop_signal.is_on and (batch := self._batch()):
                reasons = await self._send([row for _, row in batch])
                for one, reason in zip(batch, reasons, strict=False):
                    self._answered(one, reason)
            if not self._stop_signal.is_on:
                await self._stirred.wait()

    def _batch(self) -> list[Numbered]:
        batch: list[Numbered] = []
        size = 0
        while self._rows and len(batch) < limits.BATCH_JOBS_MAX and size < limits.BATCH_BYTES_MAX:
            batch.append(self._rows.popleft())
            size += len(batch[-1][1].output)
        return batch

    async def _send(self, rows: Sequence[ReportRow]) -> list[str]:
        """Returns the reply; an empty list if `end` was called before it came."""
        delay_s = _FIRST_S
        while not self._stop_signal.is_on:
            try:
                return await self._runs.report(self._worker, rows)
            except HoldfastError as error:
                self._missed(error)
                if not error.retryable:
                    raise
            await self._stop_signal.pause(delay_s * random.uniform(0.5, 1.0))
            delay_s = min(2 * delay_s, _DELAY_S_MAX)
        return []
