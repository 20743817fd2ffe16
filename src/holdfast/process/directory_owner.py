"""Which topology a data directory belongs to: each keeps its jobs in a place of its own, and would not see another's.

Nothing is written down for it: what a topology has made there is the sign.
"""

from pathlib import Path

from holdfast.errors import FailedPreconditionError
from holdfast.journal.manifest import MANIFEST_NAME
from holdfast.journal.segment import segment_names

#: The services that keep something, each in a folder of its name.
_OWNERS = ("job", "queue", "result")


def holds_jobs(directory: Path) -> bool:
    """Whether the journal of a ledger is there."""
    names = [path.name for path in directory.iterdir()] if directory.is_dir() else []
    return MANIFEST_NAME in names or bool(segment_names(names))


def holds_database(directory: Path) -> bool:
    """Whether the pipeline keeps its jobs there, in a private PostgreSQL."""
    return (directory / "postgres" / "pg_hba.conf").exists()


def topology_of(directory: Path) -> str:
    """Its name, or nothing where no topology has kept anything yet."""
    if holds_jobs(directory):
        return "embedded"
    if (directory / "node-0" / "NODE").exists():
        return "monolith"
    if all((directory / owner / MANIFEST_NAME).exists() for owner in _OWNERS):
        return "microservices"
    if holds_database(directory):
        return "pipeline"
    return "zookeeper" if (directory / "zookeeper" / "ports.json").exists() else ""


def refuse_another(directory: Path, topology: str) -> None:
    """`FailedPreconditionError` where the jobs of another topology would be looked past."""
    found = topology_of(directory)
    if found not in {"", topology}:
        raise FailedPreconditionError(
            f"{str(directory)!r} has the jobs of the topology {found}, and {topology} would not see them: start it with"
            f" `holdfast up --topology {found} --data {directory}`, or choose another directory",
            reason="TOPOLOGY_MISMATCH",
        )
