"""The list of optional features of topologies, and which of them one ledger and several ledger nodes declare.

Invariants: every interface (HTTP, gRPC, CLI, SDK), `docs/topologies/capabilities.md` and the conformance suite read the
declarations. No other module states which features a backend lacks. The declaration of several nodes is here, because
`client/routed_jobs.py` merges the declarations of nodes and a client imports no topology. The declarations of other
backends are in the folders of their topologies, and `topologies/table.py` lists all of them.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import msgspec


class Capability(StrEnum):
    """A feature that some topologies have and others lack, by its name on the wire."""

    ADMINISTRATION = "administration"
    AGING = "aging"
    FEED = "feed"
    HISTORY = "history"
    LARGE_PAYLOADS = "large_payloads"
    NOTES = "notes"
    ORDER = "order"
    RETENTION_LIMITS = "retention_limits"
    SCHEDULES = "schedules"
    SESSIONS = "sessions"
    TOTALS = "totals"
    WORKERS = "workers"


#: A phrase for users that explains each capability.
MEANINGS: Final[Mapping[Capability, str]] = MappingProxyType(
    {
        Capability.ADMINISTRATION: "statistics, queue control, the list of workers",
        Capability.AGING: "a waiting job gains priority with time",
        Capability.FEED: "an event stream of every change of every job, without gaps",
        Capability.HISTORY: "everything that happened to one job",
        Capability.LARGE_PAYLOADS: "payloads up to the limit of 1 MiB",
        Capability.NOTES: "progress() and log() calls of running jobs are stored",
        Capability.ORDER: "jobs start by priority, then in the order of submission, over all processes",
        Capability.RETENTION_LIMITS: "finished jobs are removed above a count and a size limit, not only by age",
        Capability.SCHEDULES: "jobs created by cron, at an interval or at a given time",
        Capability.SESSIONS: "a worker that reconnects replaces its old session and keeps its leases",
        Capability.TOTALS: "counts and durations of finished jobs",
        Capability.WORKERS: "`why` reports whether a worker can run the job, and which worker runs it",
    }
)


class Capabilities(msgspec.Struct, frozen=True):
    """The capabilities that one backend declares, and the Holdfast version of the server."""

    backend: str
    present: frozenset[Capability]
    #: Empty in a declaration; the server process fills it in.
    version: str = ""

    def has(self, capability: Capability) -> bool:
        """Whether the backend has this capability."""
        return capability in self.present

    @property
    def missing(self) -> dict[Capability, str]:
        """A sentence for each capability that the backend lacks, by name."""
        return {one: self.lack(one) for one in Capability if one not in self.present}

    def lack(self, capability: Capability) -> str:
        """The sentence for users that says that the backend lacks this capability."""
        name = capability.value.replace("_", " ")
        return (
            f"the {self.backend} backend has no {name} ({MEANINGS[capability]}); `holdfast server` has this capability"
        )

    def without(self, *capabilities: Capability) -> "Capabilities":
        """A copy without these capabilities."""
        return msgspec.structs.replace(self, present=self.present.difference(capabilities))

    def served(self, version: str, *, has_totals: bool) -> "Capabilities":
        """The capabilities of one server process: it has totals only if it counts finished jobs."""
        known = self if has_totals else self.without(Capability.TOTALS)
        return msgspec.structs.replace(known, version=version)


#: A directory, `holdfast server`, or a single node of the monolith.
LEDGER: Final = Capabilities("ledger", frozenset(Capability))
#: Several nodes that serve requests together.
MONOLITH: Final = msgspec.structs.replace(
    LEDGER.without(Capability.FEED, Capability.ORDER, Capability.TOTALS), backend="monolith"
)
