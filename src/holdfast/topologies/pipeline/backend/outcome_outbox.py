"""Outcomes on their way to the store: together, in order, and again until they are answered."""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence

from holdfast import limits
from holdfast.core.commands import ReportRow
from holdfast.errors import HoldfastError
from holdfast.topologies.pipeline.backend.role_loops import Ending
from holdfast.topologies.pipeline.backend.store import Runs

_FIRST_S = 0.1
_DELAY_S_MAX = 2.0

#: The number of a report, and one of its rows.
Numbered = tuple[int, ReportRow]


class OutcomeOutbox:
    """What was not answered yet. `answered` hears of each row, and why it does not count, if it does not."""

    def __init__(
        self,
        runs: Runs,
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
        self._ending = Ending()

    def add(self, report_id: int, rows: Sequence[ReportRow]) -> None:
        """These go out with the next batch."""
        self._rows.extend((report_id, row) for row in rows)
        self._stirred.set()

    def end(self) -> None:
        """What is under way is answered or not; nothing else is sent."""
        self._ending.begin()
        self._stirred.set()

    async def run(self) -> None:
        """Reports until it is ended; an error that no repetition can mend is raised."""
        while not self._ending.is_on:
            self._stirred.clear()
            while not self._ending.is_on and (batch := self._batch()):
                reasons = await self._send([row for _, row in batch])
                for one, reason in zip(batch, reasons, strict=False):
                    self._answered(one, reason)
            if not self._ending.is_on:
                await self._stirred.wait()

    def _batch(self) -> list[Numbered]:
        batch: list[Numbered] = []
        size = 0
        while self._rows and len(batch) < limits.BATCH_JOBS_MAX and size < limits.BATCH_BYTES_MAX:
            batch.append(self._rows.popleft())
            size += len(batch[-1][1].output)
        return batch

    async def _send(self, rows: Sequence[ReportRow]) -> list[str]:
        """What is answered; nothing, if it has to end before."""
        delay_s = _FIRST_S
        while not self._ending.is_on:
            try:
                return await self._runs.report(self._worker, rows)
            except HoldfastError as error:
                self._missed(error)
                if not error.retryable:
                    raise
            await self._ending.pause(delay_s * random.uniform(0.5, 1.0))
            delay_s = min(2 * delay_s, _DELAY_S_MAX)
        return []
