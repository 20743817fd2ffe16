"""How fast a journal turns into a ledger again."""

import os
import shutil
import tempfile
import time
from pathlib import Path

from holdfast.core import commands, events
from holdfast.core.commands import Decision, GrantedLease
from holdfast.core.digest import DIGEST_VERSION
from holdfast.core.events import AnyEvent, Revoked
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.core.lifecycle import DONE
from holdfast.core.model import NewJob, Now, Template
from holdfast.core.owner import mint
from holdfast.journal.file import FileJournal
from holdfast.journal.os_disk import OsDisk
from holdfast.journal.port import FRAME_OVERHEAD, JournalConfig
from holdfast.ledger.recovery import recover

_CONFIG = JournalConfig(digest_version=DIGEST_VERSION)
_CLUSTER = bytes(16)
_BATCH, _GRANT = 500, 64
_START_MS = 1_700_000_000_000


class _Writer:
    """A ledger whose events go straight into a journal, a frame each."""

    def __init__(self, journal: FileJournal) -> None:
        self._journal = journal
        self._ledger = Ledger(LedgerConfig())
        self._now_ms = _START_MS

    def do(self, command: commands.AnyCommand) -> object:
        self._now_ms += 1
        decision = self._ledger.decide(command, Now(self._now_ms, self._now_ms))
        assert isinstance(decision, Decision)
        if decision.event is not None:
            self._write(decision.event)
        return decision.reply

    def _write(self, event: AnyEvent) -> None:
        self._ledger.apply(event)
        body = events.join([events.encode_one(event)])
        assert self._journal.reserve(len(body) + FRAME_OVERHEAD)
        self._journal.write(body, 1, self._ledger.digest)


def write_history(folder: Path, jobs: int) -> None:
    """A journal in which this many jobs were created, granted and finished."""
    journal = FileJournal.open(OsDisk(folder), _CONFIG, now_ms=_START_MS, new_cluster_id=_CLUSTER)
    writer = _Writer(journal)
    template, payload = Template("bench"), b"x" * 100
    for _ in range(jobs // _BATCH):
        rows = [NewJob(job_id, 0, payload) for job_id in mint(os.urandom, _BATCH)]
        writer.do(commands.Submit([template], rows))
    lease = commands.GrantLeases("worker", frozenset({"bench"}), frozenset(), _GRANT, 30_000)
    while granted := writer.do(lease):
        assert isinstance(granted, list)
        rows_done = [_done(one) for one in granted]
        writer.do(commands.Report("worker", rows_done))
    journal.close()


def _done(lease: GrantedLease) -> commands.ReportRow:
    return commands.ReportRow(lease.job_id, lease.token, DONE, b"null")


def bare_loop_s(rounds: int) -> float:
    """Seconds that the interpreter needs to fill a dict this many times."""
    target: dict[int, int] = {}
    start = time.perf_counter()
    for i in range(rounds):
        target[i] = i  # noqa: PERF403 - this loop is the yardstick
    return time.perf_counter() - start


def replay_ratio(jobs: int) -> float:
    """How many rounds of the bare loop one job's replay costs, from files to a ledger that may serve."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-replay-"))
    try:
        write_history(folder, jobs)
        before = bare_loop_s(1_000_000) / 1_000_000
        start = time.perf_counter()
        recovered = recover(OsDisk(folder), _CONFIG, LedgerConfig(), now_ms=_START_MS, new_cluster_id=_CLUSTER)
        spent = (time.perf_counter() - start) / jobs
        after = bare_loop_s(1_000_000) / 1_000_000
        assert len(recovered.ledger.book.finished) == jobs // _BATCH * _BATCH
        recovered.journal.close()
        return spent / ((before + after) / 2)
    finally:
        shutil.rmtree(folder)


def count_expired(folder: Path) -> int:
    """How many leases a journal says have expired."""
    journal = FileJournal.open(OsDisk(folder), _CONFIG, now_ms=_START_MS, new_cluster_id=_CLUSTER)
    try:
        return sum(
            len(event.rows)
            for frame in journal.replay(journal.first_position - 1)
            for event in events.decode(frame.body)
            if isinstance(event, Revoked) and event.reason == "expired"
        )
    finally:
        journal.close()
