"""Facts from a ledger's journal, and a check of its soundness.

It reads a copy, so that reading changes nothing. Everything is read twice: as a server starts (from the newest snapshot
and the events after it), and from the first event on, by the ledger and by a model that shares no code with it. Any
difference is damage. The archive holds the segments that the server has trimmed.
"""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from holdfast.core.digest import DIGEST_VERSION
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.errors import HoldfastError
from holdfast.journal.os_disk import OsDisk
from holdfast.journal.port import Frame, JournalConfig
from holdfast.journal.reader import JournalReader
from holdfast.ledger.recovery import apply_frame, recover
from holdfast_lab.history.records import DamageFact, Record
from holdfast_lab.simulation.ledger_view import view_ledger
from holdfast_lab.simulation.model import Model, ModelViolation
from holdfast_lab.torture.arenas.archive import add_archived
from holdfast_lab.torture.arenas.event_facts import EventFacts

#: Later than any time that a wrongly set clock has written.
FAR_FUTURE_MS = 1 << 45


@contextlib.contextmanager
def copy_of(directory: Path) -> Iterator[Path]:
    """Yields a copy of the directory, which is removed at the end of the block."""
    with tempfile.TemporaryDirectory(prefix="reading-", dir=directory.parent) as folder:
        copy = Path(folder) / directory.name
        shutil.copytree(directory, copy, ignore=lambda at, names: [name for name in names if not _is_kept(at, name)])
        yield copy


def _is_kept(folder: str, name: str) -> bool:
    path = Path(folder) / name
    return path.is_file() or path.is_dir()


def read(directory: Path, store: str, archive: Path | None = None) -> list[Record]:
    """Returns all facts of one ledger; if it cannot be read, the only fact is damage."""
    try:
        ledger, frames = recovered(directory, archive)
    except (HoldfastError, AssertionError) as error:
        return [DamageFact(f"{store} cannot be read: {error}")]
    facts = EventFacts(ledger, store)
    for frame in frames:
        facts.take(frame)
    damage = [*_replayed(ledger, frames), *_second_opinion(ledger, frames)]
    return [*facts.records(), *(DamageFact(f"{store}: {text}") for text in damage)]


def recovered(directory: Path, archive: Path | None = None) -> tuple[Ledger, list[Frame]]:
    """Returns the state that a server would start from, and all frames of the journal's history."""
    config = JournalConfig(digest_version=DIGEST_VERSION)
    with copy_of(directory) as copy:
        started = recover(OsDisk(copy), config, LedgerConfig(), now_ms=FAR_FUTURE_MS, new_cluster_id=bytes(16))
        started.journal.close()
        return started.ledger, whole_journal(copy, archive)


def whole_journal(copy: Path, archive: Path | None) -> list[Frame]:
    """Returns every frame of an unused journal from its first event on; raises if one is missing."""
    add_archived(copy, archive)
    return list(JournalReader(OsDisk(copy)).frames(0))


def _replayed(ledger: Ledger, frames: list[Frame]) -> Iterator[str]:
    """Yields a difference between the replay of the whole journal and the state from the newest snapshot."""
    whole = Ledger(LedgerConfig())
    try:
        for frame in frames:
            apply_frame(whole, frame)
    except (HoldfastError, AssertionError, LookupError) as error:
        yield f"the journal cannot be replayed from its beginning: {error}"
        return
    if (whole.position, whole.digest) != (ledger.position, ledger.digest):
        yield (
            f"the journal gives the state {whole.digest:016x} at {whole.position}, its newest snapshot with what came"
            f" after it {ledger.digest:016x} at {ledger.position}"
        )


def _second_opinion(ledger: Ledger, frames: list[Frame]) -> Iterator[str]:
    """Yields the first illegal event, or a difference between the state and the model."""
    model = Model()
    try:
        for frame in frames:
            model.feed(frame.body, frame.first_position)
        model.compare(view_ledger(ledger))
    except ModelViolation as violation:
        yield str(violation)
