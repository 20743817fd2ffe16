"""Recovery of a ledger from a journal, timed."""

import tempfile
import time
from pathlib import Path

from holdfast.core import events
from holdfast.core.digest import DIGEST_VERSION
from holdfast.core.events import Revoked
from holdfast.core.ledger import LedgerConfig
from holdfast.journal.file import FileJournal
from holdfast.journal.os_disk import OsDisk
from holdfast.journal.port import JournalConfig
from holdfast.ledger.recovery import recover
from holdfast_lab.measure.ledger_writer import JournalWriter

_CONFIG = JournalConfig(digest_version=DIGEST_VERSION)
_CLUSTER = bytes(16)
_BATCH, _GRANT = 500, 64
_START_MS = 1_700_000_000_000


def write_history(folder: Path, jobs: int) -> None:
    """Write a journal in which this many jobs were created, granted and finished."""
    journal = FileJournal.open(OsDisk(folder), _CONFIG, now_ms=_START_MS, new_cluster_id=_CLUSTER)
    writer = JournalWriter(journal, _START_MS)
    for _ in range(jobs // _BATCH):
        writer.submit(_BATCH, b"x" * 100)
    while writer.finish(_GRANT):
        pass
    journal.close()


def bare_loop_s(rounds: int) -> float:
    """Seconds of the yardstick: a loop that fills a dict, with this many rounds."""
    target: dict[int, int] = {}
    start = time.perf_counter()
    for i in range(rounds):
        target[i] = i  # noqa: PERF403 - this loop is the yardstick
    return time.perf_counter() - start


def replay_ratio(jobs: int) -> float:
    """Rounds of the bare loop that the recovery of one job costs."""
    with tempfile.TemporaryDirectory(prefix="holdfast-replay-") as name:
        folder = Path(name)
        write_history(folder, jobs)
        before = bare_loop_s(1_000_000) / 1_000_000
        start = time.perf_counter()
        recovered = recover(OsDisk(folder), _CONFIG, LedgerConfig(), now_ms=_START_MS, new_cluster_id=_CLUSTER)
        spent = (time.perf_counter() - start) / jobs
        after = bare_loop_s(1_000_000) / 1_000_000
        assert len(recovered.ledger.state.finished) == jobs // _BATCH * _BATCH
        recovered.journal.close()
        return spent / ((before + after) / 2)


def count_expired(folder: Path) -> int:
    """The number of leases that expired, by a journal."""
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
