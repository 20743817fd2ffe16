"""Detects the topology of a data directory: each topology has its own layout, and does not see the jobs of another.

No marker file is written; the topology is recognised by its files.
"""

from pathlib import Path

from holdfast.errors import FailedPreconditionError
from holdfast.journal.manifest import MANIFEST_NAME
from holdfast.journal.segment import segment_names
from holdfast.topologies.table import TOPOLOGIES


def holds_jobs(directory: Path) -> bool:
    """Returns whether the directory has the journal of a ledger."""
    names = [path.name for path in directory.iterdir()] if directory.is_dir() else []
    return MANIFEST_NAME in names or bool(segment_names(names))


def topology_of(directory: Path) -> str:
    """Returns the name of the topology that uses the directory; empty if none does."""
    if holds_jobs(directory):
        return "embedded"
    marked = [entry for entry in TOPOLOGIES if entry.marks]
    return next((entry.name for entry in marked if all((directory / mark).exists() for mark in entry.marks)), "")


def refuse_another(directory: Path, topology: str) -> None:
    """Raises `FailedPreconditionError` if the directory has the jobs of another topology."""
    found = topology_of(directory)
    if found not in {"", topology}:
        raise FailedPreconditionError(
            f"{str(directory)!r} has jobs of the topology {found}, which {topology} cannot read: start it with"
            f" `holdfast up --topology {found} --data {directory}`, or choose another directory",
            reason="TOPOLOGY_MISMATCH",
        )
