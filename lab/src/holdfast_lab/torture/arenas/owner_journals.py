"""Journals of owners of the microservices, read from a copy: the state, and every event that led to it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from holdfast.journal.os_disk import OsDisk
from holdfast.journal.port import Frame, JournalConfig
from holdfast.topologies.microservices.services.owner_journal import RecoveredOwner, StateMachine, split
from holdfast_lab.torture.arenas.ledger_facts import FAR_FUTURE_MS, copy_of, whole_journal

M = TypeVar("M", bound=StateMachine)


@dataclass(frozen=True)
class OwnerJournal(Generic[M]):
    """The state that the owner would start from, the events in order, and the damage found."""

    machine: M
    events: list[Any]
    damage: list[str]


def read_owner(directory: Path, archive: Path, new: Callable[[], M], digest_version: int) -> OwnerJournal[M]:
    """Reads a directory and its archive; raises the error that would keep the owner from starting."""
    machine, config = new(), JournalConfig(digest_version=digest_version)
    with copy_of(directory) as copy:
        recovered = RecoveredOwner.of(machine, OsDisk(copy), config, now_ms=FAR_FUTURE_MS, new_cluster_id=bytes(16))
        recovered.journal.close()
        frames = whole_journal(copy, archive)
    events = [machine.decode(data) for frame in frames for data in split(frame.body)[1]]
    damage = _replayed(new(), machine, frames)
    return OwnerJournal(machine, events, [f"{directory.name}: {text}" for text in damage])


def _replayed(whole: StateMachine, machine: StateMachine, frames: list[Frame]) -> Iterator[str]:
    """Yields a difference between a replay of the whole journal and its stored digests, or the owner's start state."""
    for frame in frames:
        for data in split(frame.body)[1]:
            whole.apply(whole.decode(data))
        if frame.digest != whole.digest:
            yield f"replaying up to {frame.last_position} gives {whole.digest:016x}, written was {frame.digest:016x}"
            return
    if whole.digest != machine.digest:
        yield f"the journal gives the state {whole.digest:016x}, its newest snapshot {machine.digest:016x}"
