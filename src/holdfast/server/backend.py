"""What a gateway serves: one backend, with the capabilities that it has."""

from typing import TypeVar

import msgspec

from holdfast import limits
from holdfast.core.capabilities import LEDGER, Capabilities, Capability
from holdfast.core.model import BackoffRule
from holdfast.errors import UnimplementedError
from holdfast.ledger.work_api import LedgerWork
from holdfast.ports import AdminApi, FeedApi, HistoryApi, JobApi, ScheduleApi

T = TypeVar("T")


class ShortRetries(msgspec.Struct, frozen=True):
    """How jobs of the short forms are tried again, where they do not say it themselves."""

    max_attempts: int = limits.ATTEMPTS_DEFAULT
    backoff: BackoffRule = BackoffRule()


class Backend(msgspec.Struct, frozen=True):
    """The ports of one backend; what it lacks is None. Without `work` its workers connect elsewhere.

    A port that is there is declared, and a capability whose port is None is missing whatever is declared.
    """

    jobs: JobApi
    work: LedgerWork | None = None
    admin: AdminApi | None = None
    feed: FeedApi | None = None
    schedules: ScheduleApi | None = None
    declared: Capabilities = LEDGER
    #: Only of those who have histories and no feed.
    histories: HistoryApi | None = None
    #: What a worker is told that looks for work here although there is none.
    elsewhere: str = ""
    short_retries: ShortRetries = ShortRetries()

    def __post_init__(self) -> None:
        undeclared = [one for one, port in self._ports.items() if port is not None and not self.declared.has(one)]
        assert not undeclared, f"{self.name} has ports that it does not declare: {undeclared}"

    @property
    def name(self) -> str:
        """The name of the topology that keeps the jobs."""
        return self.declared.backend

    def capability(self, port: T | None, capability: Capability) -> T:
        """The port; `UnimplementedError` names the backend and what it lacks."""
        if port is None:
            raise UnimplementedError(self.declared.lack(capability), reason="CAPABILITY_MISSING")
        return port

    @property
    def history(self) -> HistoryApi:
        """Returns the histories of jobs; raises an error if the backend has none."""
        return self.capability(self.feed or self.histories, Capability.HISTORY)

    @property
    def capabilities(self) -> Capabilities:
        """What is declared, less what has no port here."""
        return self.declared.without(*(one for one, port in self._ports.items() if port is None))

    @property
    def _ports(self) -> dict[Capability, object | None]:
        return {
            Capability.ADMINISTRATION: self.admin,
            Capability.FEED: self.feed,
            Capability.HISTORY: self.feed or self.histories,
            Capability.SCHEDULES: self.schedules,
        }
