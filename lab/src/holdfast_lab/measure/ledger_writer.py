"""A ledger without a coordinator: commands are decided and applied one by one, and their events are handed on."""

import os
from collections.abc import Callable

from holdfast.core import commands, events
from holdfast.core.commands import Decision, ReportRow
from holdfast.core.events import AnyEvent
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.core.lifecycle import DONE
from holdfast.core.model import NewJob, Now, Template
from holdfast.core.owner import mint
from holdfast.journal.file import FileJournal
from holdfast.journal.port import FRAME_OVERHEAD

_TYPE = "bench"
_WORKER = "worker"
_LEASE_MS = 30_000


class LedgerWriter:
    """Passes every event to `write`, after it was applied."""

    def __init__(self, now_ms: int, write: Callable[[AnyEvent], None]) -> None:
        self.ledger = Ledger(LedgerConfig())
        self.now_ms = now_ms
        self._write = write

    def do(self, command: commands.AnyCommand) -> object:
        """Decide a command a millisecond after the one before it; returns the reply."""
        self.now_ms += 1
        decision = self.ledger.decide(command, Now(self.now_ms, self.now_ms))
        assert isinstance(decision, Decision)
        if decision.event is not None:
            self.ledger.apply(decision.event)
            self._write(decision.event)
        return decision.reply

    def submit(self, count: int, payload: bytes) -> list[str]:
        """Create jobs in one event; returns their ids."""
        ids = mint(os.urandom, count)
        self.do(commands.Submit([Template(_TYPE)], [NewJob(job_id, 0, payload) for job_id in ids]))
        return ids

    def finish(self, count: int) -> int:
        """Grant up to `count` jobs and report them as DONE; returns how many there were."""
        granted = self.do(commands.GrantLeases(_WORKER, frozenset({_TYPE}), frozenset(), count, _LEASE_MS))
        assert isinstance(granted, list)
        if granted:
            self.do(commands.Report(_WORKER, [ReportRow(one.job_id, one.token, DONE, b"null") for one in granted]))
        return len(granted)


class JournalWriter(LedgerWriter):
    """Writes every event as a frame of a journal."""

    def __init__(self, journal: FileJournal, now_ms: int) -> None:
        super().__init__(now_ms, self._append)
        self._journal = journal
        self.written_bytes = 0

    def _append(self, event: AnyEvent) -> None:
        body = events.join([events.encode_one(event)])
        self.written_bytes += FRAME_OVERHEAD + len(body)
        assert self._journal.reserve(len(body) + FRAME_OVERHEAD)
        self._journal.write(body, 1, self.ledger.digest, self.now_ms)
