"""The table of topologies, with one row for each. Nothing else outside a topology's folder names its modules.

A row names modules as text, so that a process loads the topology that it serves and no other. To remove a topology,
remove its folder, its row here, and what other tables have of it: its commands (`cli/command_table.py`), its URL scheme
(`sdk/url_schemes.py`), and its settings (`settings.py`; `holdfast up --help` shows them while they are there).
"""

from collections.abc import Mapping
from pkgutil import resolve_name
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast import limits

if TYPE_CHECKING:
    from holdfast.core.capabilities import Capabilities

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class TopologyEntry(NamedTuple):
    """One topology. `program` and `capabilities` are `module:attribute`."""

    name: str
    #: The program of `holdfast up --topology NAME`: `async def serve(settings: Settings, log_stream: ByteStream)`. It
    #: runs until TERM or INT.
    program: str
    #: The `Capabilities` that its backend declares.
    capabilities: str
    #: Settings of this topology, which a ledger does not accept.
    settings: frozenset[str] = frozenset()
    #: Defaults that differ from those in `settings.py`.
    defaults: Mapping[str, Any] = _NOTHING
    #: Files that identify its data directories: all of them exist in each. Empty: it has none, or they are a ledger's.
    marks: tuple[str, ...] = ()
    #: Folders of a data directory with a journal each, in the order of their backups; * stands for numbers from 0 on.
    journals: tuple[str, ...] = ()
    #: The module that replays and restores these journals, if they are not those of a ledger.
    journal_module: str = ""
    #: How to back up jobs that are in no journal, as a format of `directory`, `path` (its absolute path) and `target`.
    backup_advice: str = ""


TOPOLOGIES = (
    TopologyEntry("embedded", "holdfast.topologies.embedded.up:serve_and_work", "holdfast.core.capabilities:LEDGER"),
    TopologyEntry(
        "microservices",
        "holdfast.topologies.microservices.up:serve",
        "holdfast.topologies.microservices:MICROSERVICES",
        defaults={"data": "memory://", "slots": 6, "snapshot_bytes": limits.OWNER_SNAPSHOT_BYTES_DEFAULT},
        marks=("job/MANIFEST", "queue/MANIFEST", "result/MANIFEST"),
        # Records first and results last: so no job has ended in the one without a result in the other.
        journals=("job", "queue", "result"),
        journal_module="holdfast.topologies.microservices.services.owner_restore",
    ),
    TopologyEntry(
        "monolith",
        "holdfast.topologies.monolith.up:serve",
        "holdfast.core.capabilities:MONOLITH",
        defaults={"data": "memory://", "slots": 1, "port": 50_061},
        marks=("node-0/NODE",),
        journals=("node-*",),
    ),
    TopologyEntry(
        "pipeline",
        "holdfast.topologies.pipeline.up:serve",
        "holdfast.topologies.pipeline:PIPELINE",
        settings=frozenset({"database", "retries", "retry_ms"}),
        defaults={"slots": 5},
        marks=("postgres/pg_hba.conf",),
        backup_advice=(
            "the jobs of {directory!r} are in its PostgreSQL database; while that runs, back it up with\n"
            "  pg_dump --format custom --file {target} 'postgresql://holdfast@/holdfast?host={path}/postgres/socket'"
        ),
    ),
    TopologyEntry(
        "zookeeper",
        "holdfast.topologies.zookeeper.up:serve",
        "holdfast.topologies.zookeeper:ZOOKEEPER",
        settings=frozenset({"ensemble"}),
        defaults={"lease_ms": 10_000},
        marks=("zookeeper/ports.json",),
    ),
)
NAMES = tuple(entry.name for entry in TOPOLOGIES)
#: Settings that one topology alone takes, and no ledger.
OWN_SETTINGS = frozenset(name for entry in TOPOLOGIES for name in entry.settings)


def topology_named(name: str) -> TopologyEntry:
    """Returns the row of an existing topology."""
    return TOPOLOGIES[NAMES.index(name)]


def declared() -> "list[Capabilities]":
    """Returns the capabilities that every topology declares, in the order of the table."""
    return [resolve_name(entry.capabilities) for entry in TOPOLOGIES]
