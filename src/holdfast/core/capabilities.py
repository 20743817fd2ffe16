"""What topologies can do beyond keeping and running jobs: the one list, and what each topology declares of it.

Invariants: every interface (HTTP, gRPC, CLI, SDK), `docs/topologies/capabilities.md` and the conformance suite read the
declarations below; nothing else says what a backend lacks.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import msgspec


class Capability(StrEnum):
    """One thing that some topologies have and others lack, by its name on the wire."""

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


#: What each one means to users, as a phrase.
MEANINGS: Final[Mapping[Capability, str]] = MappingProxyType(
    {
        Capability.ADMINISTRATION: "numbers, queues, the list of workers",
        Capability.AGING: "a waiting job gains priority with time",
        Capability.FEED: "every change of every job as it happens, without a gap",
        Capability.HISTORY: "everything that happened to one job",
        Capability.LARGE_PAYLOADS: "payloads up to the limit of 1 MiB",
        Capability.NOTES: "progress() and log() of running jobs",
        Capability.ORDER: "jobs start by priority, then in the order of submission, over all processes",
        Capability.RETENTION_LIMITS: "finished jobs are removed above a number and a size, not by age alone",
        Capability.SCHEDULES: "jobs made by cron, by an interval or at a time",
        Capability.SESSIONS: "a worker that connects again replaces its old session, and what it still runs is no loss",
        Capability.TOTALS: "how many jobs ended, and how long they took",
        Capability.WORKERS: "`why` knows whether a worker can run the job, and which one runs it",
    }
)


class Capabilities(msgspec.Struct, frozen=True):
    """What one backend declares, and which version of Holdfast answers for it."""

    backend: str
    present: frozenset[Capability]
    #: Empty in a declaration; the process that serves fills it in.
    version: str = ""

    def has(self, capability: Capability) -> bool:
        """Whether it is there."""
        return capability in self.present

    @property
    def missing(self) -> dict[Capability, str]:
        """A sentence for each capability that is not there, by name."""
        return {one: self.lack(one) for one in Capability if one not in self.present}

    def lack(self, capability: Capability) -> str:
        """The sentence that says that it is not there."""
        name = capability.value.replace("_", " ")
        return (
            f"the {self.backend} backend has no {name} ({MEANINGS[capability]}); `holdfast server` has this capability"
        )

    def without(self, *capabilities: Capability) -> "Capabilities":
        """The same, less these."""
        return msgspec.structs.replace(self, present=self.present.difference(capabilities))

    def served(self, version: str, *, has_totals: bool) -> "Capabilities":
        """As one process serves it: totals are there only where that process counts."""
        known = self if has_totals else self.without(Capability.TOTALS)
        return msgspec.structs.replace(known, version=version)


#: A directory, `holdfast server`, or one node asked alone.
LEDGER: Final = Capabilities("ledger", frozenset(Capability))
MICROSERVICES: Final = msgspec.structs.replace(
    LEDGER.without(
        *(Capability.ADMINISTRATION, Capability.FEED, Capability.HISTORY, Capability.NOTES, Capability.SCHEDULES),
        *(Capability.SESSIONS, Capability.TOTALS, Capability.WORKERS),
    ),
    backend="microservices",
)
#: Several nodes, asked together.
MONOLITH: Final = msgspec.structs.replace(
    LEDGER.without(Capability.FEED, Capability.ORDER, Capability.TOTALS), backend="monolith"
)
#: Order holds within one queue process, and there are several.
PIPELINE: Final = msgspec.structs.replace(
    LEDGER.without(
        *(Capability.FEED, Capability.NOTES, Capability.ORDER, Capability.RETENTION_LIMITS, Capability.TOTALS),
    ),
    backend="pipeline",
)
ZOOKEEPER: Final = msgspec.structs.replace(
    LEDGER.without(
        *(Capability.ADMINISTRATION, Capability.AGING, Capability.FEED, Capability.LARGE_PAYLOADS),
        *(Capability.NOTES, Capability.RETENTION_LIMITS),
        *(Capability.SCHEDULES, Capability.TOTALS),
    ),
    backend="zookeeper",
)
DECLARED: Final = (LEDGER, MICROSERVICES, MONOLITH, PIPELINE, ZOOKEEPER)
