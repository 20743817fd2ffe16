"""Ledgers, events and models read from a copy of a data directory."""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from holdfast.core import events
from holdfast.core.events import AnyEvent, Granted, Reported, Revoked
from holdfast.journal import Frame, OsDisk
from holdfast.journal.reader import JournalReader
from holdfast_lab.simulation.model import Model
from holdfast_lab.torture.arenas.ledger_facts import copy_of

Event = TypeVar("Event", bound=AnyEvent)


def frames_in(directory: Path) -> list[Frame]:
    """Every frame that the journal still holds; a restored journal begins after its snapshot."""
    with copy_of(directory) as copy:
        journal = JournalReader(OsDisk(copy))
        return list(journal.frames(journal.first_position - 1))


def events_in(directory: Path) -> list[AnyEvent]:
    """All events of the journal, in order."""
    return [event for frame in frames_in(directory) for event in events.decode(frame.body)]


def checked(directory: Path) -> Model:
    """The simulator's model after the whole journal; it raises at an illegal event."""
    model = Model()
    for frame in frames_in(directory):
        model.feed(frame.body, frame.first_position)
    return model


def of_kind(found: Iterable[AnyEvent], kind: type[Event]) -> Iterator[Event]:
    """The events of one kind."""
    return (event for event in found if isinstance(event, kind))


def grants(found: Iterable[AnyEvent]) -> Counter[str]:
    """The number of grants of each job."""
    return Counter(job_id for event in of_kind(found, Granted) for job_id in event.job_ids)


def refused_reports(found: Iterable[AnyEvent]) -> list[tuple[str, str]]:
    """Job and reason of every refused report."""
    return [(row.job_id, row.reason) for event in of_kind(found, Reported) for row in event.refused]


def revocations(found: Iterable[AnyEvent]) -> list[tuple[str, bool]]:
    """Reason of every revoked lease, and whether it counted as a loss."""
    return [(event.reason, row.is_spent) for event in of_kind(found, Revoked) for row in event.rows]
