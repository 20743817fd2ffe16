"""What a data directory tells: read from a copy, so that looking changes nothing."""

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from holdfast.core import events
from holdfast.core.digest import DIGEST_VERSION
from holdfast.core.events import AnyEvent, Granted, Reported, Revoked
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.journal import Frame, JournalConfig, OsDisk
from holdfast.ledger.recovery import recover
from holdfast.testing.model import Model

Event = TypeVar("Event", bound=AnyEvent)
FAR_FUTURE_MS = 1 << 45


def copy_of(directory: Path) -> Path:
    """The directory as it is now, under another name."""
    number = sum(1 for _ in directory.parent.glob(f"{directory.name}-copy-*"))
    copy = directory.with_name(f"{directory.name}-copy-{number}")
    shutil.copytree(directory, copy)
    return copy


def ledger_in(directory: Path) -> Ledger:
    """The state that a server would start from."""
    return _recovered(directory)[0]


def _recovered(directory: Path) -> tuple[Ledger, list[Frame]]:
    recovered = recover(
        OsDisk(copy_of(directory)),
        JournalConfig(digest_version=DIGEST_VERSION),
        LedgerConfig(),
        now_ms=FAR_FUTURE_MS,
        new_cluster_id=bytes(16),
    )
    try:
        first = recovered.journal.first_position
        return recovered.ledger, list(recovered.journal.replay(first - 1))
    finally:
        recovered.journal.close()


def events_in(directory: Path) -> list[AnyEvent]:
    """Everything that the journal holds, in order."""
    return [event for frame in _recovered(directory)[1] for event in events.decode(frame.body)]


def checked(directory: Path) -> Model:
    """The second opinion's state after the whole journal, every event of which it has found lawful."""
    model = Model()
    for frame in _recovered(directory)[1]:
        model.feed(frame.body, frame.first_position)
    return model


def of_kind(found: Iterable[AnyEvent], kind: type[Event]) -> Iterator[Event]:
    """Those of one kind."""
    return (event for event in found if isinstance(event, kind))


def grants(found: Iterable[AnyEvent]) -> Counter[str]:
    """How often each job was handed out."""
    return Counter(job_id for event in of_kind(found, Granted) for job_id in event.job_ids)


def refused_reports(found: Iterable[AnyEvent]) -> list[tuple[str, str]]:
    """Job and reason of every report that was kept as evidence only."""
    return [(row.job_id, row.reason) for event in of_kind(found, Reported) for row in event.refused]


def revocations(found: Iterable[AnyEvent]) -> list[tuple[str, bool]]:
    """Reason of every lease taken back, and whether it counted as a loss."""
    return [(event.reason, row.is_spent) for event in of_kind(found, Revoked) for row in event.rows]
