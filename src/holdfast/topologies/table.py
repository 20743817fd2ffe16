"""The table of topologies: one row per topology. No other module outside a topology's folder names its modules.

A row names modules as text, so that a process imports only its own topology. To remove a topology, delete its folder
and its row; its commands and its URL scheme are rows of `cli/command_table.py` and `sdk/url_schemes.py`.
"""

from collections.abc import Mapping
from pkgutil import resolve_name
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from holdfast.core.capabilities import Capabilities

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class TopologyEntry(NamedTuple):
    """One topology. `program` and `capabilities` are `module:attribute`."""

    name: str
    #: The function that `holdfast up --topology NAME` runs.
    program: str
    #: The capabilities that its backend declares.
    capabilities: str
    #: Its own settings, which a ledger does not have.
    settings: frozenset[str] = frozenset()
    #: Its defaults that differ from those of the settings.
    defaults: Mapping[str, Any] = _NOTHING
    #: Files that all exist in a data directory with jobs of this topology.
    marks: tuple[str, ...] = ()
    #: Folders of a data directory with a journal each, in the order of their backups; * stands for numbers from 0 on.
    journals: tuple[str, ...] = ()
    #: The module that replays and restores these journals, if they are not those of a ledger.
    journal_module: str = ""


TOPOLOGIES = (
    TopologyEntry("embedded", "holdfast.topologies.embedded.up:serve_and_work", "holdfast.core.capabilities:LEDGER"),
    TopologyEntry(
        "microservices",
        "holdfast.topologies.microservices.up:serve",
        "holdfast.topologies.microservices:MICROSERVICES",
        defaults={"data": "memory://", "slots": 6},
        marks=("job/MANIFEST", "queue/MANIFEST", "result/MANIFEST"),
        # Records first and results last, so that the backup has a result for every job that has ended in it.
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
#: Settings of one topology only, which a ledger does not have.
OWN_SETTINGS = frozenset(name for entry in TOPOLOGIES for name in entry.settings)


def topology_named(name: str) -> TopologyEntry:
    """Returns the row of a topology, which must exist."""
    return TOPOLOGIES[NAMES.index(name)]


def declared() -> "list[Capabilities]":
    """Returns the declared capabilities of every topology, in the order of the table."""
    return [resolve_name(entry.capabilities) for entry in TOPOLOGIES]
