"""What a ledger's journal says of its jobs, and whether it is sound.

It is read from a copy, so that looking changes nothing. Everything is read twice: by the way on which a server starts
(the newest snapshot and what came after it), and from the first event on, by the ledger and by a second opinion that
shares no code with it. Whatever these do not agree on is damage. What the server has trimmed is in an archive.
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
from holdfast.lab.history.records import DamageFact, Record
from holdfast.lab.torture.arenas.archive import add_archived
from holdfast.lab.torture.arenas.event_facts import EventFacts
from holdfast.ledger.recovery import apply_frame, recover
from holdfast.testing.ledger_view import view_ledger
from holdfast.testing.model import Model, ModelViolation

#: Later than all that a stepped clock has written.
FAR_FUTURE_MS = 1 << 45


@contextlib.contextmanager
def copy_of(directory: Path) -> Iterator[Path]:
    """The directory as it is now, for the length of a block."""
    with tempfile.TemporaryDirectory(prefix="reading-", dir=directory.parent) as folder:
        copy = Path(folder) / directory.name
        shutil.copytree(directory, copy, ignore=lambda at, names: [name for name in names if not _is_kept(at, name)])
        yield copy


def _is_kept(folder: str, name: str) -> bool:
    path = Path(folder) / name
    return path.is_file() or path.is_dir()


def read(directory: Path, store: str, archive: Path | None = None) -> list[Record]:
    """All facts of one ledger. One that cannot be read is damage, and nothing else."""
    try:
        ledger, frames = _recovered(directory, archive)
    except (HoldfastError, AssertionError) as error:
        return [DamageFact(f"{store} cannot be read: {error}")]
    facts = EventFacts(ledger, store)
    for frame in frames:
        facts.take(frame)
    damage = [*_replayed(ledger, frames), *_second_opinion(ledger, frames)]
    return [*facts.records(), *(DamageFact(f"{store}: {text}") for text in damage)]


def _recovered(directory: Path, archive: Path | None) -> tuple[Ledger, list[Frame]]:
    """The state that a server would start from, and all that the journal ever held."""
    config = JournalConfig(digest_version=DIGEST_VERSION)
    with copy_of(directory) as copy:
        recovered = recover(OsDisk(copy), config, LedgerConfig(), now_ms=FAR_FUTURE_MS, new_cluster_id=bytes(16))
        recovered.journal.close()
        return recovered.ledger, whole_journal(copy, archive)


def whole_journal(copy: Path, archive: Path | None) -> list[Frame]:
    """Every frame of a journal that is nobody's, from its first event on; raises if one is missing."""
    add_archived(copy, archive)
    return list(JournalReader(OsDisk(copy)).frames(0))


def _replayed(ledger: Ledger, frames: list[Frame]) -> Iterator[str]:
    """Where the whole journal does not give what a snapshot and the rest of it give."""
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
    """The first event that was not lawful, or how the state differs from what the events say."""
    model = Model()
    try:
        for frame in frames:
            model.feed(frame.body, frame.first_position)
        model.compare(view_ledger(ledger))
    except ModelViolation as violation:
        yield str(violation)
